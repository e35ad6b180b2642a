#include <sys/socket.h>

#include "records.h"

#define RESERVE_BYTES (1u << 20)

static _Atomic uint64_t held_bytes;

uint64_t outbox_bytes(void) { return atomic_load(&held_bytes); }

struct block *block_new(uint16_t kind, size_t payload, bool urgent)
{
    size_t room = sizeof(struct wire_header) + payload;
    size_t most = options.outbox_bytes + (urgent ? RESERVE_BYTES : 0);
    if (atomic_load(&held_bytes) + room > most)
        return NULL;
    struct block *block = malloc(sizeof *block + room);
    if (block == NULL)
        return NULL;
    *block = (struct block){.refs = 1, .room = room, .bytes = sizeof(struct wire_header)};
    ((struct wire_header *)block->data)->kind = kind;
    atomic_fetch_add(&held_bytes, room);
    return block;
}

void block_drop(struct block *block)
{
    if (--block->refs != 0)
        return;
    atomic_fetch_sub(&held_bytes, block->room);
    free(block);
}

void block_seal(struct block *block, size_t bytes, uint32_t records)
{
    struct wire_header *header = (struct wire_header *)block->data;
    header->bytes = (uint32_t)bytes;
    header->flags = 0;
    header->sent_ns = real_ns();
    block->bytes = sizeof *header + bytes;
    block->records = records;
}

bool queue_put(struct queue *queue, struct block *block, size_t limit)
{
    if (queue->count == QUEUE_ROOM || queue->bytes + block->bytes > limit)
        return false;
    queue->ring[(queue->head + queue->count++) % QUEUE_ROOM] = block;
    queue->bytes += block->bytes;
    block->refs++;
    return true;
}

static void queue_shift(struct queue *queue)
{
    struct block *block = queue->ring[queue->head];
    queue->head = (queue->head + 1) % QUEUE_ROOM;
    queue->count--;
    queue->bytes -= block->bytes - queue->sent;
    queue->sent = 0;
    block_drop(block);
}

int queue_send(struct queue *queue, int fd, bool *moved)
{
    while (queue->count != 0) {
        struct block *block = queue->ring[queue->head];
        size_t left = block->bytes - queue->sent;
        ssize_t gone = send(fd, block->data + queue->sent, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (gone < 0) {
            if (errno == EINTR)
                continue;
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 1 : -1;
        }
        *moved = true;
        if ((size_t)gone < left) {
            queue->sent += (size_t)gone;
            queue->bytes -= (size_t)gone;
            return 1;
        }
        queue_shift(queue);
    }
    return 0;
}

void queue_clear(struct queue *queue)
{
    while (queue->count != 0)
        queue_shift(queue);
    queue->head = 0;
}

#define LANE_BYTES (60u << 10)

struct lane lanes[LANE_COUNT];
uint64_t outbox_lost;

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
        outbox_lost++;
        if (id != LANE_MARKS)
            coverage_taint();
        return NULL;
    }
    uint8_t *place = block->data + sizeof(struct wire_header);
    lanes[id] = (struct lane){place + bytes, room - bytes, block};
    return place;
}

void lanes_flush(void)
{
    for (int id = 0; id < LANE_COUNT; id++)
        lane_send((enum lane_id)id);
}

void outbox_forked(void)
{
    atomic_store(&held_bytes, 0);
    memset(lanes, 0, sizeof lanes);
}
