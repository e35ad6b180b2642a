#include "control.h"

#include <string.h>

#include "agent.h"
#include "brrrtop_agent.h"
#include "report.h"
#include "server.h"
#include "trace.h"
#include "wire.h"

static void obey(const struct wire_control *control, int slot)
{
    switch (control->op) {
    case OP_BURST:
        agent_stay();
        trace_burst(control->a, control->b);
        break;
    case OP_BURST_END:
        trace_burst_end();
        break;
    case OP_CONTINUOUS:
        if (control->a != 0)
            agent_stay();
        server_set_continuous(slot, control->a != 0);
        break;
    case OP_DETACH:
        /* With others still watching, the one who leaves only leaves. */
        if (server_clients() > 1)
            server_part(slot);
        else
            agent_detach();
        break;
    case OP_PING:
        server_pinged(slot);
        if (control->a != 0)
            report_status_to(slot);
        break;
    case OP_STACKS:
        agent_raise(control->a != 0 ? BRRR_EV_STACKS_ON : BRRR_EV_STACKS_OFF);
        break;
    case OP_KINDS:
        server_set_kinds(slot, (uint32_t)control->a & (WANT_DEFAULT | WANT_ALLOCS | WANT_GRAPHS | WANT_HOLDS));
        break;
    case OP_SHAPES:
        /* Else it comes with the next burst that begins. */
        agent_raise(trace_state() == TRACE_TRACING ? BRRR_EV_SHAPES | BRRR_EV_TRACING : BRRR_EV_SHAPES);
        break;
    default:
        break; /* a newer monitor's wish */
    }
}

bool control_read(struct inbox *in, int slot)
{
    size_t at = 0;
    struct wire_header header;
    while (in->held - at >= sizeof header) {
        memcpy(&header, in->bytes + at, sizeof header);
        if (header.bytes > sizeof in->bytes - sizeof header)
            return false;
        if (in->held - at < sizeof header + header.bytes)
            break;
        if (header.kind == WIRE_CONTROL && header.bytes == sizeof(struct wire_control)) {
            struct wire_control control;
            memcpy(&control, in->bytes + at + sizeof header, sizeof control);
            obey(&control, slot);
        }
        at += sizeof header + header.bytes;
    }
    memmove(in->bytes, in->bytes + at, in->held - at);
    in->held -= at;
    return true;
}
