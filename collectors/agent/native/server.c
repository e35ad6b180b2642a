#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "trace.h"

#define NAMES_BYTES (128u << 10)
#define STALLED_NS (2 * NS_PER_S)
#define ASLEEP_NS (5 * NS_PER_S)
#define GIVEN_UP_NS (30 * NS_PER_S)
#define DEAF_NS (1 * NS_PER_S)

struct client {
    struct own_fd own; /* none: the slot is free */
    uint32_t names_told, allowed;
    bool continuous, stalled;
    uint64_t lost, lost_told;
    int64_t moved_ns; /* monotonic: last time the queue was empty or shrank */
    int64_t pinged_ns; /* monotonic; 0: this monitor does not ping */
    uint8_t from[4096]; /* what came of a frame that is not whole yet */
    size_t heard;
    struct queue out;
};

#define EACH_MONITOR(client)                                                                       \
    for (struct client *client = clients; client < clients + CLIENTS; client++)                    \
        if (client->own.fd >= 0)

static struct client clients[CLIENTS] = {[0 ... CLIENTS - 1] = {.own.fd = -1}};
static struct own_fd listening = {.fd = -1};
static atomic_int connected;
static int64_t deaf_until_ns; /* monotonic: nobody could be let in, and poll would say so at once, again */
static bool changed;

static struct sockaddr_un address; /* where we listen, and what was put there */
static struct stat bound;

int server_clients(void) { return atomic_load_explicit(&connected, memory_order_relaxed); }

static int refuse(const char *what, const char *path)
{
    return agent_fail(BRRR_E_SOCKET, "%s %.200s: %s", what, path, strerror(errno));
}

/* Whoever can write in the folder can put another socket in our place. */
static int check_folder(const char *path)
{
    char folder[sizeof address.sun_path];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return agent_fail(BRRR_E_SOCKET, "the socket path %.200s has no folder of its own", path);
    *slash = '\0';
    struct stat found;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return refuse("cannot make the folder", folder);
    if (stat(folder, &found) != 0)
        return refuse("cannot look at the folder", folder);
    if (!S_ISDIR(found.st_mode))
        return agent_fail(BRRR_E_SOCKET, "%.200s is not a folder", folder);
    if ((found.st_uid != geteuid() && found.st_uid != 0) || found.st_mode & (S_IWGRP | S_IWOTH))
        return agent_fail(BRRR_E_SOCKET, "others can write in %.200s: use a folder with mode 0700", folder);
    return BRRR_OK;
}

static int clear_the_way(const char *path)
{
    struct stat found;
    if (lstat(path, &found) != 0)
        return errno == ENOENT ? BRRR_OK : refuse("cannot look at", path);
    if (!S_ISSOCK(found.st_mode) || (found.st_uid != geteuid() && geteuid() != 0))
        return agent_fail(BRRR_E_SOCKET, "%.200s is in the way and is not a socket of ours", path);
    return unlink(path) == 0 ? BRRR_OK : refuse("cannot replace the socket", path);
}

/* Makes the last folder of the path (0700) when it is missing; the socket is 0600 from the start: only its
 * owner and root reach it. */
int server_open(const char *path)
{
    deaf_until_ns = 0;
    if (strlen(path) >= sizeof address.sun_path)
        return agent_fail(BRRR_E_SOCKET, "the socket path is longer than %zu bytes: %.120s",
                          sizeof address.sun_path - 1, path);
    int code = check_folder(path);
    if (code == BRRR_OK)
        code = clear_the_way(path);
    if (code != BRRR_OK)
        return code;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return refuse("no socket for", path);
    /* Before bind, the mode is what the socket's file gets: no moment in which others could connect. */
    fchmod(fd, 0600);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 8) != 0) {
        code = refuse("cannot listen on", path);
        close(fd);
        return code;
    }
    chmod(path, 0600);
    if (lstat(path, &bound) != 0)
        bound.st_ino = 0;
    own_fd_keep(&listening, fd);
    return BRRR_OK;
}

/* The other side is this user, or root. */
static bool trusts(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* Removes the socket from where it was put, unless another lies there by now. */
static void unlink_socket(void)
{
    struct stat found;
    if (bound.st_ino != 0 && lstat(address.sun_path, &found) == 0 && found.st_dev == bound.st_dev &&
        found.st_ino == bound.st_ino)
        unlink(address.sun_path);
    bound.st_ino = 0;
}

bool server_listens(void) { return own_fd_holds(&listening); }

static bool lose(struct client *client, uint32_t records)
{
    client->lost += records;
    outbox_lost += records;
    return false;
}

static bool put(struct client *client, struct block *block, bool urgent)
{
    if (client->out.count == 0)
        client->moved_ns = mono_ns();
    int sharers = server_clients();
    size_t limit = options.outbox_bytes / (size_t)(sharers > 0 ? sharers : 1) + (urgent ? NAMES_BYTES * 2 : 0);
    return queue_put(&client->out, block, limit) || lose(client, block->records);
}

/* False: a name is missing, so what follows must not be sent. */
static bool tell_names(struct client *client)
{
    uint32_t last = names_count().last;
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
    EACH_MONITOR(client) {
        if (tell_names(client))
            put(client, block, false);
        else
            lose(client, block->records);
    }
}

void server_send(int slot, uint16_t kind, const void *payload, size_t bytes, uint32_t records, bool urgent)
{
    if (server_clients() == 0 || (slot != EVERYBODY && clients[slot].own.fd < 0))
        return;
    struct block *block = block_new(kind, bytes, urgent);
    if (block == NULL) {
        outbox_lost += records;
        return;
    }
    memcpy(block->data + sizeof(struct wire_header), payload, bytes);
    block_seal(block, bytes, records);
    EACH_MONITOR(client)
        if (slot == EVERYBODY || client == &clients[slot])
            put(client, block, urgent);
    block_drop(block);
}

void server_observed(const struct wire_observed *observed)
{
    EACH_MONITOR(client) {
        struct wire_observed told = *observed;
        if (client->lost != client->lost_told)
            told.flags |= OBSERVED_LOSSY;
        client->lost_told = client->lost;
        server_send((int)(client - clients), WIRE_OBSERVED, &told, sizeof told, 0, true);
    }
}

static void let_go(struct client *client)
{
    if (client->own.fd < 0)
        return;
    queue_clear(&client->out);
    if (own_fd_holds(&client->own))
        shutdown(client->own.fd, SHUT_RDWR); /* a forked child may hold a copy */
    own_fd_close(&client->own);
    changed = true;
    if (atomic_fetch_sub(&connected, 1) == 1)
        requests_raise(BRRR_EV_MONITOR_GONE | BRRR_EV_STOP);
}

static void welcome(int fd)
{
    int slot = 0;
    while (slot < CLIENTS && clients[slot].own.fd >= 0)
        slot++;
    if (slot == CLIENTS || !trusts(fd)) {
        close(fd);
        return;
    }
    struct client *client = &clients[slot];
    memset(client, 0, sizeof *client);
    client->moved_ns = mono_ns();
    own_fd_keep(&client->own, fd);
    changed = true;
    atomic_fetch_add(&connected, 1);
    report_welcome(slot);
    tell_names(client);
    requests_raise(BRRR_EV_MONITOR);
}

static void obey(const struct wire_control *control, struct client *client)
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
        client->continuous = control->a != 0;
        changed = true;
        break;
    case OP_DETACH:
        /* With others still watching, the one who leaves only leaves. */
        if (server_clients() > 1)
            let_go(client);
        else
            agent_detach();
        break;
    case OP_PING:
        client->pinged_ns = mono_ns();
        if (control->a != 0)
            report_status((int)(client - clients), NULL);
        break;
    case OP_KINDS:
        client->allowed = (uint32_t)control->a & (ALLOWED_GRAPHS | ALLOWED_HOLDS);
        changed = true;
        break;
    case OP_SHAPES: /* if none is traced now, of the next burst */
        requests_raise(tracing.state == TRACE_TRACING ? BRRR_EV_SHAPES | BRRR_EV_TRACING : BRRR_EV_SHAPES);
        break;
    case OP_REST:
        requests_raise(BRRR_EV_REST);
        break;
    default:
        break; /* a newer monitor's wish */
    }
}

/* Acts on the whole frames that have come. False: this is not our wire, let the monitor go. */
static bool read_wishes(struct client *client)
{
    size_t at = 0;
    struct wire_header header;
    while (client->heard - at >= sizeof header) {
        memcpy(&header, client->from + at, sizeof header);
        if (header.bytes > sizeof client->from - sizeof header)
            return false;
        if (client->heard - at < sizeof header + header.bytes)
            break;
        if (header.kind == WIRE_CONTROL && header.bytes == sizeof(struct wire_control)) {
            struct wire_control control;
            memcpy(&control, client->from + at + sizeof header, sizeof control);
            obey(&control, client);
        }
        at += sizeof header + header.bytes;
    }
    memmove(client->from, client->from + at, client->heard - at);
    client->heard -= at;
    return true;
}

static void hear(struct client *client)
{
    for (int rounds = 0; rounds < 16 && client->own.fd >= 0; rounds++) {
        bool ours = own_fd_holds(&client->own);
        ssize_t got = ours ? recv(client->own.fd, client->from + client->heard, sizeof client->from - client->heard,
                                  MSG_DONTWAIT)
                           : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        client->heard += got > 0 ? (size_t)got : 0;
        if (got <= 0 || !read_wishes(client))
            let_go(client);
    }
}

static void speak(struct client *client, int64_t now_ns)
{
    bool moved = false, stalled = client->stalled;
    bool ours = client->out.count == 0 || own_fd_holds(&client->own);
    int left = ours ? queue_send(&client->out, client->own.fd, &moved) : -1;
    if (left < 0) {
        hear(client); /* who hangs up may have asked for our end just before */
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

int64_t server_watch(struct pollfd *fds, int64_t now_ns)
{
    if (now_ns >= deaf_until_ns)
        deaf_until_ns = 0;
    fds[CLIENTS] = (struct pollfd){deaf_until_ns ? -1 : listening.fd, POLLIN, 0};
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = (struct pollfd){clients[i].own.fd,
                                 (short)(POLLIN | (clients[i].out.count != 0 ? POLLOUT : 0)), 0};
    return deaf_until_ns ? deaf_until_ns : INT64_MAX;
}

/* A trainer without a descriptor left leaves whoever knocks waiting, and the socket readable. */
static void let_in(int64_t now_ns)
{
    if (!server_listens())
        return;
    int fd = accept4(listening.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        welcome(fd);
    else if (errno != EAGAIN && errno != ECONNABORTED)
        deaf_until_ns = now_ns + DEAF_NS;
}

void server_serve(const struct pollfd *fds, int64_t now_ns)
{
    EACH_MONITOR(client)
        if (fds[client - clients].fd == client->own.fd && fds[client - clients].revents & ~POLLOUT)
            hear(client);
    if (fds[CLIENTS].revents & POLLIN)
        let_in(now_ns);
    EACH_MONITOR(client)
        speak(client, now_ns);
}

bool server_wishes(bool *continuous, uint32_t *allowed)
{
    bool was = changed;
    changed = *continuous = false;
    *allowed = 0;
    EACH_MONITOR(client) {
        *continuous |= client->continuous && !client->stalled;
        *allowed |= client->allowed;
    }
    return was;
}

void server_close(const char *reason, int patience_ms)
{
    char end[160];
    int bytes = snprintf(end, sizeof end, "{\"reason\":\"%s\"}", reason);
    server_send(EVERYBODY, WIRE_END, end, (size_t)bytes, 0, true);
    int64_t until_ns = mono_ns() + patience_ms * NS_PER_MS;
    for (bool waiting = true; waiting;) {
        waiting = false;
        EACH_MONITOR(client) {
            bool moved;
            waiting |= own_fd_holds(&client->own) && queue_send(&client->out, client->own.fd, &moved) == 1;
        }
        if (!waiting || mono_ns() >= until_ns)
            break;
        nanosleep(&(struct timespec){0, 2 * NS_PER_MS}, NULL);
    }
    EACH_MONITOR(client)
        let_go(client);
    own_fd_close(&listening);
    unlink_socket();
}

void server_forked(void)
{
    EACH_MONITOR(client) { /* a free slot is not written to: that would be a page of the child's own */
        own_fd_close(&client->own);
        memset(client, 0, sizeof *client);
        client->own.fd = -1;
    }
    own_fd_close(&listening);
    atomic_store(&connected, 0);
}
