/* Threads that wait, one in each system call that signal(7) says a stop or a signal can cut short, and what
 * those calls returned. Nobody signals them, so none may end in EINTR, nor before its time.
 *
 * A library for a Python child; a program with -DPROGRAM; with WAITS_REPORT=FILE in the environment it
 * begins by itself in any program that it is loaded into, and writes FILE twice a second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define EARLY_US 1200 /* the kernel counts those of sockets in jiffies of 4 ms: 5 ms are one whole and a part */

struct wait {
    const char *name;
    long (*call)(struct wait *self);   /* at its time limit, or where nobody woke it: -1 and an error number */
    bool (*prepare)(struct wait *self);
    void (*wake)(struct wait *self);   /* for one without a limit; NULL: it has one */
    int a, b;
    void *more;
    pthread_t thread;
    atomic_bool there;
    atomic_int tid;
    atomic_long calls, cut_short, early, odd, longest_us;
};

static atomic_bool over;
static atomic_int running; /* of them, those that have not ended */
static long limit_ms = 5; /* below a second */
static struct timespec limit = {0, 5000000};
static char bytes[1 << 16];

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static struct timespec in(clockid_t clock, long ns)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ns;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* --- sockets, with a limit on each --- */

static bool pair(struct wait *self)
{
    int ends[2];
    struct timeval most = {0, limit_ms * 1000};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return false;
    self->a = ends[0], self->b = ends[1];
    setsockopt(self->a, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(self->a, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    return true;
}

static bool full_pair(struct wait *self)
{
    if (!pair(self))
        return false;
    while (send(self->a, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
    while (send(self->a, bytes, 1, MSG_DONTWAIT) > 0)
        continue;
    return true;
}

static int listen_anywhere(int backlog, struct sockaddr_un *at)
{
    socklen_t size = sizeof *at;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (bind(fd, (struct sockaddr *)at, sizeof at->sun_family) != 0 || listen(fd, backlog) != 0)
        return -1;
    getsockname(fd, (struct sockaddr *)at, &size);
    return fd;
}

static bool listener(struct wait *self)
{
    struct sockaddr_un at;
    struct timeval most = {0, limit_ms * 1000};
    self->a = listen_anywhere(1, &at);
    return self->a >= 0 && setsockopt(self->a, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0;
}

/* A queue of connections that is full. */
static bool caller(struct wait *self)
{
    static struct sockaddr_un at;
    self->b = listen_anywhere(0, &at);
    self->more = &at;
    for (int i = 0; i < 2; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fd, (struct sockaddr *)&at, sizeof at.sun_family + 6);
    }
    struct timeval most = {0, limit_ms * 1000};
    self->a = socket(AF_UNIX, SOCK_STREAM, 0);
    return self->b >= 0 && setsockopt(self->a, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0;
}

#define HEAD(name) struct iovec part = {bytes, 1}; struct msghdr name = {.msg_iov = &part, .msg_iovlen = 1}
static long call_read(struct wait *w) { return syscall(SYS_read, w->a, bytes, 1); }
static long call_readv(struct wait *w) { struct iovec part = {bytes, 1}; return syscall(SYS_readv, w->a, &part, 1); }
static long call_preadv2(struct wait *w) { struct iovec part = {bytes, 1}; return syscall(SYS_preadv2, w->a, &part, 1, -1L, -1L, 0); }
static long call_recvfrom(struct wait *w) { return syscall(SYS_recvfrom, w->a, bytes, 1, 0, NULL, NULL); }
static long call_recvmsg(struct wait *w) { HEAD(head); return syscall(SYS_recvmsg, w->a, &head, 0); }
static long call_recvmmsg(struct wait *w) { HEAD(head); struct mmsghdr all = {head, 0}; return syscall(SYS_recvmmsg, w->a, &all, 1, 0, NULL); }
static long call_accept(struct wait *w) { return syscall(SYS_accept, w->a, NULL, NULL); }
static long call_accept4(struct wait *w) { return syscall(SYS_accept4, w->a, NULL, NULL, 0); }
static long call_write(struct wait *w) { return syscall(SYS_write, w->a, bytes, 1); }
static long call_writev(struct wait *w) { struct iovec part = {bytes, 1}; return syscall(SYS_writev, w->a, &part, 1); }
static long call_pwritev2(struct wait *w) { struct iovec part = {bytes, 1}; return syscall(SYS_pwritev2, w->a, &part, 1, -1L, -1L, 0); }
static long call_sendto(struct wait *w) { return syscall(SYS_sendto, w->a, bytes, 1, 0, NULL, 0); }
static long call_sendmsg(struct wait *w) { HEAD(head); return syscall(SYS_sendmsg, w->a, &head, 0); }
static long call_sendmmsg(struct wait *w) { HEAD(head); struct mmsghdr all = {head, 0}; return syscall(SYS_sendmmsg, w->a, &all, 1, 0); }
static long call_connect(struct wait *w) { return syscall(SYS_connect, w->a, w->more, sizeof(sa_family_t) + 6); }

/* --- descriptors, sleeps, futexes, signals --- */

static bool epolled(struct wait *self) { return (self->a = epoll_create1(0)) >= 0; }
static bool piped(struct wait *self)
{
    int ends[2];
    bool made = pipe(ends) == 0;
    self->a = ends[0], self->b = ends[1];
    return made;
}
static long call_epoll_wait(struct wait *w) { struct epoll_event e; return syscall(SYS_epoll_wait, w->a, &e, 1, (int)limit_ms); }
static long call_epoll_pwait(struct wait *w) { struct epoll_event e; return syscall(SYS_epoll_pwait, w->a, &e, 1, (int)limit_ms, NULL, 8); }
static long call_epoll_pwait2(struct wait *w) { struct epoll_event e; return syscall(441, w->a, &e, 1, &limit, NULL, 8); }
static long call_poll(struct wait *w) { struct pollfd p = {w->a, POLLIN, 0}; return syscall(SYS_poll, &p, 1, (int)limit_ms); }
static long call_ppoll(struct wait *w) { struct pollfd p = {w->a, POLLIN, 0}; struct timespec t = limit; return syscall(SYS_ppoll, &p, 1, &t, NULL, 8); }
static long call_select(struct wait *w) { struct timeval t = {0, limit_ms * 1000}; (void)w; return syscall(SYS_select, 0, NULL, NULL, NULL, &t); }
static long call_pselect6(struct wait *w) { struct timespec t = limit; (void)w; return syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL); }
static long call_nanosleep(struct wait *w) { (void)w; return syscall(SYS_nanosleep, &limit, NULL); }
static long call_clock_nanosleep(struct wait *w) { (void)w; return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &limit, NULL); }
static long call_futex(struct wait *w) { return syscall(SYS_futex, &w->b, FUTEX_WAIT, w->b, &limit); }
static long call_futex_waitv(struct wait *w)
{
    struct { uint64_t val, uaddr; uint32_t flags, reserved; } one = {(uint64_t)w->b, (uintptr_t)&w->b, 2, 0};
    struct timespec t = in(CLOCK_MONOTONIC, limit.tv_nsec);
    return syscall(449, &one, 1, 0, &t, CLOCK_MONOTONIC);
}
static bool has_futex_waitv(struct wait *w) { return call_futex_waitv(w) < 0 && errno == ETIMEDOUT; }
static long call_sigtimedwait(struct wait *w)
{
    sigset_t set;
    (void)w;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX - 1);
    return syscall(SYS_rt_sigtimedwait, &set, NULL, &limit, 8);
}

/* --- System V and POSIX queues, locks --- */

static bool semaphore(struct wait *self)
{
    self->a = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    return self->a >= 0;
}
static bool queue(struct wait *self)
{
    self->a = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
    return self->a >= 0;
}
static bool full_queue(struct wait *self)
{
    struct { long kind; char text[8]; } one = {1, ""};
    if (!queue(self))
        return false;
    while (msgsnd(self->a, &one, sizeof one.text, IPC_NOWAIT) == 0)
        continue;
    return true;
}
static long call_semtimedop(struct wait *w) { struct sembuf op = {0, -1, 0}; return syscall(SYS_semtimedop, w->a, &op, 1, &limit); }
static long call_semop(struct wait *w) { struct sembuf op = {0, -1, 0}; return syscall(SYS_semop, w->a, &op, 1); }
static void wake_semop(struct wait *w) { struct sembuf op = {0, 1, IPC_NOWAIT}; semop(w->a, &op, 1); }
static long call_msgrcv(struct wait *w) { long one[2]; return syscall(SYS_msgrcv, w->a, one, 8, 0, 0); }
static void wake_msgrcv(struct wait *w) { long one[2] = {1, 0}; msgsnd(w->a, one, 8, IPC_NOWAIT); }
static long call_msgsnd(struct wait *w) { long one[2] = {1, 0}; return syscall(SYS_msgsnd, w->a, one, 8, 0); }
static void wake_msgsnd(struct wait *w) { long one[2]; msgrcv(w->a, one, 8, 0, IPC_NOWAIT); }

static bool messages(struct wait *self)
{
    struct mq_attr most = {.mq_maxmsg = 1, .mq_msgsize = 8};
    char name[64];
    snprintf(name, sizeof name, "/waits-%d-%s", getpid(), self->name);
    self->a = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &most);
    mq_unlink(name);
    return self->a >= 0;
}
static bool full_messages(struct wait *self) { return messages(self) && mq_send(self->a, "", 1, 0) == 0; }
static long call_mq_receive(struct wait *w) { char one[8]; struct timespec t = in(CLOCK_REALTIME, limit.tv_nsec); return syscall(SYS_mq_timedreceive, w->a, one, 8, NULL, &t); }
static long call_mq_send(struct wait *w) { struct timespec t = in(CLOCK_REALTIME, limit.tv_nsec); return syscall(SYS_mq_timedsend, w->a, "", 1, 0, &t); }

static bool locked(struct wait *self)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/waits-%d-%s", getpid(), self->name);
    self->a = open(path, O_RDWR | O_CREAT, 0600);
    self->b = open(path, O_RDWR);
    unlink(path);
    return self->b >= 0;
}
static long call_flock(struct wait *w) { long done = syscall(SYS_flock, w->a, LOCK_EX); return flock(w->a, LOCK_UN), usleep(1000), done; }
static void wake_flock(struct wait *w) { flock(w->b, LOCK_UN), usleep(100), flock(w->b, LOCK_EX | LOCK_NB); }
static struct flock range(short kind) { return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_len = 1}; }
static long call_fcntl(struct wait *w)
{
    struct flock lock = range(F_WRLCK), unlock = range(F_UNLCK);
    long done = syscall(SYS_fcntl, w->a, F_OFD_SETLKW, &lock);
    return fcntl(w->a, F_OFD_SETLK, &unlock), usleep(1000), done;
}
static void wake_fcntl(struct wait *w)
{
    struct flock lock = range(F_WRLCK), unlock = range(F_UNLCK);
    fcntl(w->b, F_OFD_SETLK, &unlock), usleep(100), fcntl(w->b, F_OFD_SETLK, &lock);
}
static bool flocked(struct wait *self) { return locked(self) && flock(self->b, LOCK_EX) == 0; }
static bool range_locked(struct wait *self) { return locked(self) && (wake_fcntl(self), true); }
static long call_pipe(struct wait *w) { return syscall(SYS_read, w->a, bytes, 1); }
static void wake_pipe(struct wait *w) { if (write(w->b, "", 1) < 0) return; }
static bool fifo(struct wait *self)
{
    char *path = malloc(64);
    snprintf(path, 64, "/tmp/waits-%d-fifo", getpid());
    self->more = path;
    return mkfifo(path, 0600) == 0;
}
static long call_open(struct wait *w)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, w->more, O_RDONLY);
    return fd >= 0 ? close(fd), usleep(1000), fd : fd;
}
static void wake_open(struct wait *w)
{
    int fd = open(w->more, O_WRONLY | O_NONBLOCK);
    if (fd >= 0)
        close(fd);
    if (atomic_load(&over))
        unlink(w->more);
}

/* --- children --- */

/* Is stopped and goes on, by turns. */
static bool child(struct wait *self)
{
    self->a = fork();
    while (self->a == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        usleep(1000000);
    }
    return self->a > 0;
}
static long call_wait4(struct wait *w) { return syscall(SYS_wait4, w->a, NULL, WUNTRACED | WCONTINUED, NULL); }
static long call_waitid(struct wait *w) { return syscall(SYS_waitid, P_PID, w->a, NULL, WSTOPPED | WCONTINUED | WEXITED, NULL); }
static void wake_wait(struct wait *w)
{
    kill(w->a, w->b ? SIGCONT : SIGSTOP);
    w->b = !w->b;
}

/* --- asynchronous I/O --- */

static bool aio(struct wait *self)
{
    static aio_context_t contexts[2];
    aio_context_t *one = &contexts[self->name[3] == 'p'];
    self->more = one;
    return syscall(SYS_io_setup, 4, one) == 0;
}
static long call_io_getevents(struct wait *w) { struct io_event e; return syscall(SYS_io_getevents, *(aio_context_t *)w->more, 1, 1, &e, &limit); }
static long call_io_pgetevents(struct wait *w) { struct io_event e; return syscall(333, *(aio_context_t *)w->more, 1, 1, &e, &limit, NULL); }
static bool ring(struct wait *self)
{
    struct io_uring_params none = {0};
    self->a = (int)syscall(SYS_io_uring_setup, 4, &none);
    return self->a >= 0 && none.features & IORING_FEAT_EXT_ARG;
}
static long call_io_uring(struct wait *w)
{
    struct { uint64_t sigmask; uint32_t size, pad; uint64_t ts; } most = {0, 8, 0, (uintptr_t)&limit};
    return syscall(SYS_io_uring_enter, w->a, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &most, sizeof most);
}

#define W(title, how, before, after) {.name = title, .call = how, .prepare = before, .wake = after}
static struct wait waits[] = {
    W("read", call_read, pair, NULL), W("readv", call_readv, pair, NULL), W("preadv2", call_preadv2, pair, NULL),
    W("recvfrom", call_recvfrom, pair, NULL), W("recvmsg", call_recvmsg, pair, NULL),
    W("recvmmsg", call_recvmmsg, pair, NULL), W("accept", call_accept, listener, NULL),
    W("accept4", call_accept4, listener, NULL), W("connect", call_connect, caller, NULL),
    W("write", call_write, full_pair, NULL), W("writev", call_writev, full_pair, NULL),
    W("pwritev2", call_pwritev2, full_pair, NULL), W("sendto", call_sendto, full_pair, NULL),
    W("sendmsg", call_sendmsg, full_pair, NULL), W("sendmmsg", call_sendmmsg, full_pair, NULL),
    W("epoll_wait", call_epoll_wait, epolled, NULL), W("epoll_pwait", call_epoll_pwait, epolled, NULL),
    W("epoll_pwait2", call_epoll_pwait2, epolled, NULL), W("poll", call_poll, piped, NULL),
    W("ppoll", call_ppoll, piped, NULL), W("select", call_select, NULL, NULL),
    W("pselect6", call_pselect6, NULL, NULL), W("nanosleep", call_nanosleep, NULL, NULL),
    W("clock_nanosleep", call_clock_nanosleep, NULL, NULL), W("futex", call_futex, NULL, NULL),
    W("futex_waitv", call_futex_waitv, has_futex_waitv, NULL), W("rt_sigtimedwait", call_sigtimedwait, NULL, NULL),
    W("semtimedop", call_semtimedop, semaphore, NULL), W("semop", call_semop, semaphore, wake_semop),
    W("msgrcv", call_msgrcv, queue, wake_msgrcv), W("msgsnd", call_msgsnd, full_queue, wake_msgsnd),
    W("mq_timedreceive", call_mq_receive, messages, NULL), W("mq_timedsend", call_mq_send, full_messages, NULL),
    W("flock", call_flock, flocked, wake_flock), W("fcntl", call_fcntl, range_locked, wake_fcntl),
    W("read of a pipe", call_pipe, piped, wake_pipe), W("open of a FIFO", call_open, fifo, wake_open),
    W("wait4", call_wait4, child, wake_wait), W("waitid", call_waitid, child, wake_wait),
    W("io_getevents", call_io_getevents, aio, NULL), W("io_pgetevents", call_io_pgetevents, aio, NULL),
    W("io_uring_enter", call_io_uring, ring, NULL),
};
#define COUNT ((int)(sizeof waits / sizeof waits[0]))

static void *loop(void *given)
{
    struct wait *self = given;
    atomic_store(&self->tid, (int)syscall(SYS_gettid));
    while (!atomic_load(&over)) {
        int64_t began = now_us();
        long result = self->call(self);
        int error = result < 0 ? errno : 0;
        int64_t took = now_us() - began;
        atomic_fetch_add(&self->calls, 1);
        if (error == EINTR)
            atomic_fetch_add(&self->cut_short, 1);
        else if (error != 0 && error != EAGAIN && error != ETIMEDOUT && error != ETIME)
            atomic_store(&self->odd, error);
        else if (self->wake == NULL && took < limit_ms * 1000 - EARLY_US) {
            atomic_fetch_add(&self->early, 1);
            atomic_store(&self->odd, error ? -error : 1000 + (int)result);
        }
        if (took > atomic_load(&self->longest_us))
            atomic_store(&self->longest_us, took);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static pthread_t waker;
static void *wake(void *given)
{
    (void)given;
    while (!atomic_load(&over) || atomic_load(&running)) { /* one may yet begin a call that nothing else ends */
        usleep(5000);
        for (int i = 0; i < COUNT; i++)
            if (waits[i].there && waits[i].wake)
                waits[i].wake(&waits[i]);
    }
    return NULL;
}

EXPORT void waits_limit(long ms)
{
    limit_ms = ms;
    limit.tv_nsec = ms * 1000000;
}

/* Begins them all, with signals left to other threads; how many this kernel has. */
EXPORT int waits_begin(void)
{
    sigset_t all, before;
    int there = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&over, false);
    for (int i = 0; i < COUNT; i++)
        if ((waits[i].there = waits[i].prepare == NULL || waits[i].prepare(&waits[i])))
            there += pthread_create(&waits[i].thread, NULL, loop, &waits[i]) == 0;
    atomic_store(&running, there);
    pthread_create(&waker, NULL, wake, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return there;
}

/* A line for each: name, thread, calls, ended in EINTR, before their time, another error, longest in microseconds. */
EXPORT int waits_report(char *out, int size)
{
    int used = 0;
    for (int i = 0; i < COUNT; i++)
        if (waits[i].there)
            used += snprintf(out + used, used < size ? (size_t)(size - used) : 0, "%s\t%d\t%ld\t%ld\t%ld\t%ld\t%ld\n",
                             waits[i].name, waits[i].tid, waits[i].calls, waits[i].cut_short, waits[i].early,
                             waits[i].odd, waits[i].longest_us);
    return used;
}

EXPORT void waits_end(void)
{
    atomic_store(&over, true);
    pthread_join(waker, NULL);
    for (int i = 0; i < COUNT; i++)
        if (waits[i].there)
            pthread_join(waits[i].thread, NULL);
    for (int i = 0; i < COUNT; i++)
        if (waits[i].there && waits[i].wake == wake_wait)
            kill(waits[i].a, SIGKILL), waitpid(waits[i].a, NULL, 0);
}

static void *write_report(void *path)
{
    static char text[1 << 14];
    for (;;) {
        usleep(500000);
        int size = waits_report(text, sizeof text);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd >= 0 && write(fd, text, (size_t)size) >= 0)
            close(fd);
    }
    return NULL;
}

__attribute__((constructor)) static void begin_by_itself(void)
{
    pthread_t writer;
    char *path = getenv("WAITS_REPORT");
    if (path == NULL)
        return;
    path = strdup(path);
    unsetenv("WAITS_REPORT"); /* the program's own children have none */
    unsetenv("LD_PRELOAD");
    waits_begin();
    pthread_create(&writer, NULL, write_report, path);
}

#ifdef PROGRAM
/* Until its input ends; then what came of them. */
int main(void)
{
    static char text[1 << 14];
    char byte;
    waits_begin();
    for (ssize_t got = 1; got > 0;) {
        usleep(20000);
        printf("up\n");
        fflush(stdout);
        got = read(0, &byte, 1);
        int size = waits_report(text, sizeof text);
        printf("%.*s", size, text);
    }
    waits_end();
    return 0;
}
#endif
