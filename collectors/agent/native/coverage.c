#include "records.h"

#define STREAMS 64
#define DENSE 0.9

/* Work of one stream runs in the order of its launches. So what was launched before tracing began
 * is over when the stream's first record starts, and nothing untraced runs on it before its last
 * one ends. The busiest stream of a device speaks for it: the others mostly wait for it. */
struct stream {
    uint32_t device, id;
    int64_t first_ns, last_ns, busy_ns;
};

static struct {
    struct stream streams[STREAMS];
    uint32_t count, recent;
    int64_t enabled_ns;
    int64_t told_ns[STREAMS]; /* by the index of a device's first stream: end of its last span */
    bool tainted;
} span;

void coverage_begin(int64_t enabled_ns)
{
    memset(&span, 0, sizeof span);
    span.enabled_ns = enabled_ns;
}

static struct stream *stream_of(uint32_t device, uint32_t id)
{
    struct stream *recent = &span.streams[span.recent];
    if (span.count != 0 && recent->device == device && recent->id == id)
        return recent;
    for (uint32_t i = 0; i < span.count; i++)
        if (span.streams[i].device == device && span.streams[i].id == id) {
            span.recent = i;
            return &span.streams[i];
        }
    if (span.count == STREAMS)
        return NULL;
    span.recent = span.count++;
    span.streams[span.recent] = (struct stream){device, id, INT64_MAX, 0, 0};
    return &span.streams[span.recent];
}

void coverage_add(uint32_t device, uint32_t stream, int64_t start_ns, int64_t end_ns)
{
    struct stream *row = stream_of(device, stream);
    if (row == NULL)
        return;
    if (start_ns < row->first_ns)
        row->first_ns = start_ns;
    if (end_ns > row->last_ns)
        row->last_ns = end_ns;
    row->busy_ns += end_ns - start_ns;
}

static const struct stream *busiest(uint32_t device)
{
    const struct stream *best = NULL;
    for (uint32_t i = 0; i < span.count; i++)
        if (span.streams[i].device == device &&
            (best == NULL || span.streams[i].busy_ns > best->busy_ns))
            best = &span.streams[i];
    return best;
}

static bool is_first_of_device(uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (span.streams[i].device == span.streams[index].device)
            return false;
    return true;
}

/* Up to `at_ns`, or where that is later and tracing `ended`, to the last record. */
static void tell_all(int64_t at_ns, bool ended)
{
    for (uint32_t i = 0; i < span.count; i++) {
        if (!is_first_of_device(i))
            continue;
        const struct stream *speaker = busiest(span.streams[i].device);
        int64_t start_ns = span.told_ns[i], end_ns = at_ns;
        if (start_ns == 0)
            start_ns = speaker->first_ns > span.enabled_ns ? speaker->first_ns : span.enabled_ns;
        if (ended && speaker->last_ns > at_ns)
            end_ns = speaker->last_ns;
        if (end_ns <= start_ns)
            continue;
        span.told_ns[i] = end_ns;
        server_observed(&(struct wire_observed){start_ns, end_ns, (int32_t)speaker->device,
                                                span.tainted ? OBSERVED_LOSSY : 0});
    }
    if (span.count != 0)
        span.tainted = false;
}

void coverage_advance(int64_t launched_ns) { tell_all(launched_ns, false); }
void coverage_end(int64_t stopped_ns, bool whole) { tell_all(whole ? stopped_ns : 0, true); }
void coverage_taint(void) { span.tainted = true; }

bool coverage_dense(void)
{
    for (uint32_t i = 0; i < span.count; i++) {
        const struct stream *row = &span.streams[i];
        if ((double)row->busy_ns >= DENSE * (double)(row->last_ns - row->first_ns))
            return row->last_ns > row->first_ns;
    }
    return false;
}
