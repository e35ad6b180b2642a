#include "frame_builder.h"

#include <stdatomic.h>
#include <stddef.h>

#include "coverage.h"
#include "outbox.h"
#include "server.h"

#define LANE_BYTES (60u << 10)

struct lane lanes[LANE_COUNT];
static _Atomic uint64_t lost;

static const struct {
    uint16_t kind, bytes;
} WIRE[LANE_COUNT] = {
    {WIRE_KERNELS, sizeof(struct wire_kernel)},
    {WIRE_COPIES, sizeof(struct wire_copy)},
    {WIRE_CALLS, sizeof(struct wire_call)},
    {WIRE_MARKS, sizeof(struct wire_mark)},
};

static void lane_send(enum lane_id id)
{
    struct lane *lane = &lanes[id];
    if (lane->block == NULL)
        return;
    size_t bytes = (size_t)(lane->at - lane->block->data) - sizeof(struct wire_header);
    if (bytes != 0) {
        block_seal(lane->block, bytes, (uint32_t)(bytes / WIRE[id].bytes));
        server_broadcast(lane->block);
    }
    block_drop(lane->block);
    *lane = (struct lane){NULL, 0, NULL};
}

void *lane_open(enum lane_id id, uint32_t bytes)
{
    lane_send(id);
    if (server_clients() == 0)
        return NULL;
    uint32_t room = LANE_BYTES / bytes * bytes;
    struct block *block = block_new(WIRE[id].kind, room, false);
    if (block == NULL) {
        atomic_fetch_add(&lost, 1);
        if (id != LANE_MARKS)
            coverage_taint();
        return NULL;
    }
    struct lane *lane = &lanes[id];
    lane->block = block;
    uint8_t *place = block->data + sizeof(struct wire_header);
    lane->at = place + bytes;
    lane->left = room - bytes;
    return place;
}

void frame_builder_flush(void)
{
    for (int id = 0; id < LANE_COUNT; id++)
        lane_send((enum lane_id)id);
}

uint64_t frame_builder_lost(void) { return atomic_load(&lost); }

void frame_builder_forked(void)
{
    for (int id = 0; id < LANE_COUNT; id++)
        lanes[id] = (struct lane){NULL, 0, NULL};
}
