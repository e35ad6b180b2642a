#include "server.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "brrrtop_agent.h"
#include "clock.h"
#include "control.h"
#include "listener.h"
#include "names.h"
#include "own_fd.h"
#include "report.h"

#define NAMES_BYTES (128u << 10)
#define STALLED_NS (2 * NS_PER_S)
#define ASLEEP_NS (5 * NS_PER_S)
#define GIVEN_UP_NS (30 * NS_PER_S)
#define DEAF_NS (1 * NS_PER_S)

struct client {
    int fd; /* -1: the slot is free */
    struct own_fd is;
    uint32_t names_told, kinds;
    bool continuous, stalled;
    uint64_t lost, lost_told;
    int64_t moved_ns; /* monotonic: last time the queue was empty or shrank */
    int64_t pinged_ns; /* monotonic; 0: this monitor does not ping */
    struct inbox in;
    struct queue out;
};

static struct client clients[CLIENTS] = {[0 ... CLIENTS - 1] = {.fd = -1}};
static atomic_int listening = -1, connected;
static struct own_fd listening_is;
static int64_t deaf_until_ns; /* monotonic: nobody could be let in, and poll would say so at once, again */
static _Atomic uint64_t lost;
static bool changed;

int server_clients(void) { return atomic_load_explicit(&connected, memory_order_relaxed); }
uint64_t server_lost(void) { return atomic_load(&lost); }

int server_open(const char *path)
{
    int fd = listener_open(path);
    if (fd >= 0)
        atomic_store(&listening, own_fd_keep(fd, &listening_is));
    deaf_until_ns = 0;
    return fd < 0 ? fd : 0;
}

bool server_listens(void) { return own_fd_holds(atomic_load(&listening), &listening_is); }

bool server_changed(void)
{
    bool was = changed;
    changed = false;
    return was;
}

static size_t share_of_outbox(void)
{
    int count = server_clients();
    return outbox_limit_bytes() / (size_t)(count > 0 ? count : 1);
}

static bool put(struct client *client, struct block *block, bool urgent)
{
    if (client->out.count == 0)
        client->moved_ns = mono_ns();
    size_t limit = share_of_outbox() + (urgent ? NAMES_BYTES * 2 : 0);
    if (queue_put(&client->out, block, limit))
        return true;
    client->lost += block->records;
    atomic_fetch_add(&lost, block->records);
    return false;
}

/* False: a name is missing, so what follows must not be sent. */
static bool tell_names(struct client *client)
{
    uint32_t last = names_last();
    while (client->names_told < last) {
        struct block *block = block_new(WIRE_NAMES, NAMES_BYTES, true);
        if (block == NULL)
            return false;
        uint32_t told = client->names_told;
        size_t bytes = names_write(told + 1, block->data + sizeof(struct wire_header), NAMES_BYTES, &told);
        block_seal(block, bytes, 0);
        bool sent = bytes != 0 && put(client, block, true);
        block_drop(block);
        if (!sent)
            return false;
        client->names_told = told;
    }
    return true;
}

void server_broadcast(struct block *block)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &clients[i];
        if (client->fd < 0)
            continue;
        if (!tell_names(client)) {
            client->lost += block->records;
            atomic_fetch_add(&lost, block->records);
            continue;
        }
        put(client, block, false);
    }
}

static struct block *small(uint16_t kind, const void *payload, size_t bytes, uint32_t records, bool urgent)
{
    struct block *block = block_new(kind, bytes, urgent);
    if (block == NULL)
        return NULL;
    memcpy(block->data + sizeof(struct wire_header), payload, bytes);
    block_seal(block, bytes, records);
    return block;
}

void server_send(uint16_t kind, const void *payload, size_t bytes, uint32_t records, bool urgent)
{
    if (server_clients() == 0)
        return;
    struct block *block = small(kind, payload, bytes, records, urgent);
    if (block == NULL) {
        atomic_fetch_add(&lost, records);
        return;
    }
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0)
            put(&clients[i], block, urgent);
    block_drop(block);
}

void server_send_to(int slot, uint16_t kind, const void *payload, size_t bytes)
{
    struct block *block = clients[slot].fd < 0 ? NULL : small(kind, payload, bytes, 0, true);
    if (block == NULL)
        return;
    put(&clients[slot], block, true);
    block_drop(block);
}

void server_observed(const struct wire_observed *observed)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &clients[i];
        struct wire_observed told = *observed;
        if (client->lost != client->lost_told)
            told.flags |= OBSERVED_LOSSY;
        client->lost_told = client->lost;
        server_send_to(i, WIRE_OBSERVED, &told, sizeof told);
    }
}

static void let_go(struct client *client)
{
    int fd = client->fd;
    client->fd = -1;
    queue_clear(&client->out);
    if (own_fd_holds(fd, &client->is)) {
        shutdown(fd, SHUT_RDWR); /* a forked child may hold a copy */
        close(fd);
    }
    changed = true;
    if (atomic_fetch_sub(&connected, 1) == 1)
        agent_raise(BRRR_EV_MONITOR_GONE | BRRR_EV_STOP);
}

static void welcome(int fd)
{
    int slot = 0;
    while (slot < CLIENTS && clients[slot].fd >= 0)
        slot++;
    if (slot == CLIENTS || !listener_trusts(fd)) {
        close(fd);
        return;
    }
    struct client *client = &clients[slot];
    memset(client, 0, sizeof *client);
    client->kinds = WANT_DEFAULT;
    client->moved_ns = mono_ns();
    client->fd = own_fd_keep(fd, &client->is);
    changed = true;
    atomic_fetch_add(&connected, 1);
    report_welcome(slot);
    tell_names(client);
    agent_raise(BRRR_EV_MONITOR);
}

static void hear(int slot)
{
    struct client *client = &clients[slot];
    for (int rounds = 0; rounds < 16; rounds++) {
        struct inbox *in = &client->in;
        if (!own_fd_holds(client->fd, &client->is)) {
            let_go(client);
            return;
        }
        ssize_t got = recv(client->fd, in->bytes + in->held, sizeof in->bytes - in->held, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            let_go(client);
            return;
        }
        in->held += (size_t)got;
        if (!control_read(in, slot)) {
            let_go(client);
            return;
        }
        if (client->fd < 0)
            return;
    }
}

static void speak(int slot, int64_t now_ns)
{
    struct client *client = &clients[slot];
    bool moved = false, stalled = client->stalled;
    bool ours = client->out.count == 0 || own_fd_holds(client->fd, &client->is);
    int left = ours ? queue_send(&client->out, client->fd, &moved) : -1;
    if (left < 0) {
        hear(slot); /* who hangs up may have asked for our end just before */
        if (client->fd >= 0)
            let_go(client);
        return;
    }
    if (left == 0 || moved)
        client->moved_ns = now_ns;
    int64_t silent_ns = client->pinged_ns != 0 ? now_ns - client->pinged_ns : 0;
    client->stalled = now_ns - client->moved_ns > STALLED_NS || silent_ns > ASLEEP_NS;
    if (now_ns - client->moved_ns > GIVEN_UP_NS || silent_ns > GIVEN_UP_NS)
        let_go(client);
    else
        changed |= stalled != client->stalled;
}

void server_watch(struct pollfd *fds, int64_t now_ns)
{
    if (now_ns >= deaf_until_ns)
        deaf_until_ns = 0;
    fds[CLIENTS] = (struct pollfd){deaf_until_ns ? -1 : atomic_load(&listening), POLLIN, 0};
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = (struct pollfd){clients[i].fd,
                                 (short)(POLLIN | (clients[i].out.count != 0 ? POLLOUT : 0)), 0};
}

int64_t server_due_ns(void) { return deaf_until_ns ? deaf_until_ns : INT64_MAX; }

/* A trainer without a descriptor left leaves whoever knocks waiting, and the socket readable. */
static void let_in(int64_t now_ns)
{
    if (!server_listens())
        return;
    int fd = accept4(atomic_load(&listening), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        welcome(fd);
    else if (errno != EAGAIN && errno != ECONNABORTED)
        deaf_until_ns = now_ns + DEAF_NS;
}

void server_serve(const struct pollfd *fds, int64_t now_ns)
{
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0 && fds[i].fd == clients[i].fd && fds[i].revents & ~POLLOUT)
            hear(i);
    if (fds[CLIENTS].revents & POLLIN)
        let_in(now_ns);
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0)
            speak(i, now_ns);
}

bool server_wants_continuous(void)
{
    bool wanted = false;
    for (int i = 0; i < CLIENTS; i++)
        wanted |= clients[i].fd >= 0 && clients[i].continuous && !clients[i].stalled;
    return wanted;
}

uint32_t server_wanted_kinds(void)
{
    uint32_t kinds = 0;
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0)
            kinds |= clients[i].kinds;
    return kinds ? kinds : WANT_DEFAULT;
}

void server_set_continuous(int slot, bool on)
{
    clients[slot].continuous = on;
    changed = true;
}

void server_set_kinds(int slot, uint32_t kinds)
{
    clients[slot].kinds = kinds;
    changed = true;
}

void server_pinged(int slot) { clients[slot].pinged_ns = mono_ns(); }

void server_part(int slot)
{
    if (clients[slot].fd >= 0)
        let_go(&clients[slot]);
}

void server_close(const char *reason, int patience_ms)
{
    char end[160];
    int bytes = snprintf(end, sizeof end, "{\"reason\":\"%s\"}", reason);
    server_send(WIRE_END, end, (size_t)bytes, 0, true);
    int64_t until_ns = mono_ns() + patience_ms * NS_PER_MS;
    for (bool waiting = true; waiting;) {
        waiting = false;
        for (int i = 0; i < CLIENTS; i++) {
            bool moved = false;
            if (clients[i].fd >= 0 && own_fd_holds(clients[i].fd, &clients[i].is) &&
                queue_send(&clients[i].out, clients[i].fd, &moved) == 1)
                waiting = true;
        }
        if (!waiting || mono_ns() >= until_ns)
            break;
        nanosleep(&(struct timespec){0, 2 * NS_PER_MS}, NULL);
    }
    for (int i = 0; i < CLIENTS; i++)
        server_part(i);
    own_fd_close(atomic_exchange(&listening, -1), &listening_is);
    listener_unlink();
}

void server_forked(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (clients[i].fd < 0)
            continue; /* not written to: that would be a page of the child's own */
        own_fd_close(clients[i].fd, &clients[i].is);
        memset(&clients[i], 0, sizeof clients[i]);
        clients[i].fd = -1;
    }
    own_fd_close(atomic_exchange(&listening, -1), &listening_is);
    atomic_store(&connected, 0);
}
