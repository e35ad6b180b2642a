/* The agent's thread and the calls Python makes. */
#include <signal.h>
#include <sys/socket.h>

#include "trace.h"

#define BEAT_NS (100 * NS_PER_MS)
#define DETACH_PATIENCE_NS (2 * NS_PER_S) /* for Python's side to take its hooks out, where there is one */
#define LAST_PATIENCE_NS (30 * NS_PER_S)
#define STATS 10 /* of brrr_stats */
#define STACK_BYTES (1u << 20)

/* Two ends that wake the agent's thread, kept open from the first start on: a thread of CUPTI's may be
 * about to use one. What is sent is empty: were the number somebody else's in that very moment, a file
 * would refuse it and a stream would not notice. */
static struct own_fd waker = {.fd = -1}, woken = {.fd = -1};
static atomic_bool awake, exiting, thread_lives;
static _Atomic uint64_t published[STATS];
static int64_t detach_ns, idle_ns, over_ns;

void agent_wake(void)
{
    if (!atomic_load(&thread_lives) || atomic_exchange(&awake, true) || !own_fd_holds(&waker))
        return;
    int kept = errno;
    send(atomic_load(&waker.fd), "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
    errno = kept;
}

void agent_detach(void)
{
    trace_detach(false);
    if (detach_ns == 0)
        detach_ns = mono_ns() + (requests_awaited() ? DETACH_PATIENCE_NS : 0);
    requests_raise(BRRR_EV_STOP);
}

void agent_stay(void) { detach_ns = 0; }

static void send_marks(void)
{
    struct wire_mark mark;
    while (marks_take(&mark)) {
        struct wire_mark *out = lane_next(LANE_MARKS, sizeof *out);
        if (out != NULL)
            *out = mark;
    }
}

static void send_parcels(void)
{
    struct parcel *next;
    for (struct parcel *parcel = inbox_take(); parcel != NULL; parcel = next) {
        next = parcel->next;
        lanes_flush(); /* in the order of their making */
        bool keep = parcel->kind == WIRE_HELLO || parcel->kind == WIRE_DEVICE;
        if (keep)
            report_keep(parcel->kind, parcel->payload);
        server_send(EVERYBODY, parcel->kind, parcel->payload, parcel->bytes, keep ? 0 : parcel->records, keep);
        free(parcel);
    }
}

static void publish(void)
{
    const uint64_t now[] = {
        tracing.state,
        (uint64_t)server_clients(),
        records_seen.kernels,
        records_seen.calls,
        report_lost(),
        atomic_load(&pool_counts.mapped_bytes),
        outbox_bytes(),
        names_count().bytes,
        tracing.bursts,
        (uint64_t)clock_ns(CLOCK_THREAD_CPUTIME_ID),
    };
    _Static_assert(sizeof now == sizeof published, "as many as are published");
    for (int i = 0; i < STATS; i++)
        atomic_store_explicit(&published[i], now[i], memory_order_relaxed);
}

/* True: the thread ends. */
static bool heed_requests(void)
{
    char who[128];
    uint64_t ticket;
    int asked = requests_asked(who, sizeof who, &ticket);
    if (asked & ASK_YIELD)
        trace_yield(who);
    if (asked & ASK_RESUME)
        trace_resume();
    if (asked & ~ASK_STOP)
        requests_answer(ticket);
    return asked & ASK_STOP;
}

/* Nobody is left who was told what the names mean. */
static void clear_names(void)
{
    if (!names_count().crowded)
        return;
    names_begin_anew();
    records_forget_names();
    calls_name();
}

static void heed_monitors(int64_t now_ns)
{
    bool continuous;
    uint32_t allowed;
    if (!server_wishes(&continuous, &allowed))
        return;
    if (server_clients() == 0) {
        trace_detach(false);
        clear_names();
        idle_ns = options.idle_retract_ms ? now_ns + options.idle_retract_ms * NS_PER_MS : INT64_MAX;
    } else {
        idle_ns = INT64_MAX;
        over_ns = 0;
        trace_want(continuous, allowed);
    }
}

static int until(int64_t due_ns, int64_t now_ns)
{
    if (due_ns == INT64_MAX)
        return -1;
    if (due_ns <= now_ns)
        return 0;
    int64_t ms = (due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return ms < 60000 ? (int)ms : 60000;
}

static int64_t sooner(int64_t one, int64_t other) { return one < other ? one : other; }

/* False: our descriptors are gone, so somebody closed all there were. */
static bool sleep_and_serve(int64_t due_ns)
{
    struct pollfd fds[SERVER_FDS + 1];
    int64_t now_ns = mono_ns();
    due_ns = sooner(due_ns, server_watch(fds, now_ns));
    fds[SERVER_FDS] = (struct pollfd){atomic_load(&woken.fd), POLLIN, 0};
    if (poll(fds, SERVER_FDS + 1, until(due_ns, now_ns)) < 0) {
        /* No memory, or a limit below seven descriptors. It would fail at once again, so all are tried
         * after a while, or when somebody wakes: none of them blocks. */
        for (int ms = 0; ms < BEAT_NS / NS_PER_MS && !atomic_load(&awake); ms++)
            nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
        for (int i = 0; i <= SERVER_FDS; i++)
            fds[i].revents = fds[i].fd >= 0 ? POLLIN : 0;
    }
    bool ours = own_fd_holds(&woken) && own_fd_holds(&waker) && server_listens();
    char nothing;
    while (ours && fds[SERVER_FDS].revents & POLLIN &&
           recv(fds[SERVER_FDS].fd, &nothing, sizeof nothing, MSG_DONTWAIT) >= 0)
        continue;
    /* After the read, or a wake between the two would be taken and the next ones suppressed. An
     * exchange, so that what was made ready before a suppressed wake is seen now. */
    atomic_exchange(&awake, false);
    server_serve(fds, mono_ns());
    return ours;
}

/* Time to end: unless something is on that can only be switched off where the trainer is met. */
static bool may_end(int64_t now_ns)
{
    if (over_ns == 0) {
        over_ns = now_ns + LAST_PATIENCE_NS;
        trace_detach(false);
    }
    return !trace_is_on() || (now_ns >= over_ns && !trace_must_wait());
}

static const char *work(void)
{
    idle_ns = options.idle_retract_ms ? mono_ns() + options.idle_retract_ms * NS_PER_MS : INT64_MAX;
    detach_ns = over_ns = 0;
    for (;;) {
        int64_t now_ns = mono_ns();
        if (atomic_load(&exiting))
            return "the trainer exits";
        if ((heed_requests() || (detach_ns != 0 && now_ns >= detach_ns)) && may_end(now_ns))
            return "detached";
        if (server_clients() == 0 && now_ns >= idle_ns && may_end(now_ns))
            return "nobody watched";
        heed_monitors(now_ns);
        trace_pump();
        int64_t due_ns = trace_tick(now_ns);
        if (!trace_is_on())
            due_ns = sooner(due_ns, idle_ns);
        send_marks();
        lanes_flush();
        send_parcels();
        report_losses(now_ns);
        publish();
        if (server_clients() != 0)
            due_ns = sooner(due_ns, now_ns + BEAT_NS);
        if (detach_ns != 0 && !trace_is_on())
            due_ns = sooner(due_ns, detach_ns);
        if (!sleep_and_serve(due_ns))
            return "the trainer closed our descriptors";
    }
}

static void *run(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "brrrtop-agent");
    clear_names();
    calls_name();
    const char *reason = work();
    trace_detach(true);
    send_marks();
    lanes_flush();
    server_close(reason, atomic_load(&exiting) ? 50 : 200);
    pool_trim();
    publish();
    atomic_store(&thread_lives, false);
    requests_ended();
    return NULL;
}

static int begin_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    requests_started();
    atomic_store(&thread_lives, true);
    int fault = pthread_create(&thread, &attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (fault == 0)
        return BRRR_OK;
    atomic_store(&thread_lives, false);
    return agent_fail(BRRR_E_THREAD, "no thread for the agent: %s", strerror(fault));
}

/* Before the libraries we call begin to take themselves apart. Never waits for long. */
static void at_exit(void)
{
    atomic_store(&exiting, true);
    cupti_close(200);
    agent_wake();
    int64_t until_ns = mono_ns() + 100 * NS_PER_MS;
    while (atomic_load(&thread_lives) && mono_ns() < until_ns)
        nanosleep(&(struct timespec){0, NS_PER_MS / 2}, NULL);
}

/* Only this thread is in the child: nothing of ours may run or be reachable there. */
static void in_child(void)
{
    own_fd_close(&waker);
    own_fd_close(&woken);
#define FORKED(part) part##_forked();
    FORKED_PARTS(FORKED)
    atomic_store(&awake, false);
    atomic_store(&thread_lives, false);
}

static void once_per_process(void)
{
    pthread_atfork(NULL, NULL, in_child);
    atexit(at_exit);
}

/* False: no descriptors are left; errno says it. */
static bool open_wakers(void)
{
    int ends[2];
    if (own_fd_holds(&waker) && own_fd_holds(&woken))
        return true;
    own_fd_close(&waker);
    own_fd_close(&woken);
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return false;
    own_fd_keep(&waker, ends[0]);
    own_fd_keep(&woken, ends[1]);
    return true;
}

static int prepare(const char *socket_path, const char *hello_json)
{
    if (!report_keep(WIRE_HELLO, hello_json))
        return agent_fail(BRRR_E_MEMORY, "no memory for the hello");
    if (!open_wakers())
        return agent_fail(BRRR_E_SOCKET, "no socket to wake the agent by: %s", strerror(errno));
    int code = server_open(socket_path);
    if (code != BRRR_OK)
        return code;
    marks_begin();
    atomic_store(&awake, false);
    pool_configure(options.buffer_bytes, options.max_buffers);
    trace_init();
    return BRRR_OK;
}

int brrr_start(const char *socket_path, const char *hello_json, const char *option_text)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (socket_path == NULL || *socket_path == '\0')
        return agent_fail(BRRR_E_ARGUMENT, "no socket path was given");
    if (hello_json == NULL || *hello_json != '{')
        return agent_fail(BRRR_E_ARGUMENT, "the hello is not a JSON object");
    pthread_once(&once, once_per_process);
    if (atomic_load(&exiting))
        return agent_fail(BRRR_E_BUSY, "the process is exiting");
    switch (requests_enter()) {
    case GATE_RUNNING:
        return BRRR_OK;
    case GATE_BUSY:
        return agent_fail(BRRR_E_BUSY, "the agent is just starting or stopping: try again");
    case GATE_MINE:
        break;
    }
    int code = options_read(option_text);
    if (code == BRRR_OK)
        code = prepare(socket_path, hello_json);
    if (code == BRRR_OK && (code = begin_thread()) != BRRR_OK)
        server_close("no thread", 0);
    if (code != BRRR_OK)
        requests_ended();
    return code;
}

bool agent_exiting(void) { return atomic_load(&exiting); }
bool agent_listens(void) { return atomic_load(&thread_lives); }

/* Exit handlers run last in, first out: this one has to run before those that CUPTI added when it was
 * first used. */
void agent_guard_exit(void)
{
    static bool guarded;
    if (!guarded)
        guarded = atexit(at_exit) == 0;
}

int brrr_stats(uint64_t *out, int n)
{
    for (int i = 0; out != NULL && i < n && i < STATS; i++)
        out[i] = atomic_load_explicit(&published[i], memory_order_relaxed);
    return STATS;
}
