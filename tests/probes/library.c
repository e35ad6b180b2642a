/* A library with the agent's interface that writes down what it is told, for tests.
 *
 * BRRRTOP_TEST_LOG: a file that gets one line per call. BRRRTOP_TEST_EVENTS: a FIFO from which
 * brrr_wait reads what to answer, one number a line.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int events = -1, stopped;
static uint32_t names;

static void say(const char *what) {
    const char *path = getenv("BRRRTOP_TEST_LOG");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    char line[1 << 16];
    int size = snprintf(line, sizeof line, "%s\n", what);
    if (file < 0) return;
    if (write(file, line, size < (int)sizeof line ? size : (int)sizeof line - 1) < 0) abort();
    close(file);
}

int brrr_start(const char *path, const char *hello, const char *options) {
    char line[1 << 15];
    const char *fifo = getenv("BRRRTOP_TEST_EVENTS");
    if (strstr(path, "refuse-me")) return -2;
    if (events < 0 && fifo) events = open(fifo, O_RDWR | O_CLOEXEC);
    stopped = 0;
    snprintf(line, sizeof line, "start %s|%s|%s", path, options, hello);
    say(line);
    return 0;
}

const char *brrr_last_error(void) { return "the directory cannot be written"; }

int brrr_wait(int timeout_ms) {
    struct pollfd ready = {events, POLLIN, 0};
    char text[16] = "";
    for (int waited = 0; waited < timeout_ms; waited += 5) {
        if (stopped) return 256;
        if (poll(&ready, events >= 0, 5) > 0 && ready.revents & POLLIN) {
            for (unsigned at = 0; at + 1 < sizeof text; at++)
                if (read(events, text + at, 1) != 1 || text[at] == '\n') break;
            return atoi(text);
        }
    }
    return 0;
}

void brrr_mark(uint16_t cls, int64_t a, int64_t b, int64_t value, uint32_t name, uint32_t tid) {
    char line[96];
    snprintf(line, sizeof line, "mark %u %ld %u %u", cls, (long)value, name, tid);
    say(line);
    if (b < a) abort();
}

void brrr_step(int64_t t_ns, uint32_t tid) {
    char line[64];
    snprintf(line, sizeof line, "step %ld %u", (long)t_ns, tid);
    say(line);
}

static void *collection(void *none, void *const *given, long count) {
    (void)given;
    say(count == 2 ? "collection" : "?");
    return none;
}

const void *brrr_collection(void) {
    static const struct { const char *name; void *call; int flags; const char *says; } method = {"collection", (void *)collection, 0x80, NULL};
    return &method;
}

uint32_t brrr_name(const char *text) {
    char line[1 << 13];
    snprintf(line, sizeof line, "name %u %s", ++names, text);
    say(line);
    return names;
}

int brrr_frame(uint16_t kind, const void *payload, uint32_t bytes, uint32_t records) {
    char line[1 << 15];
    if (records)
        snprintf(line, sizeof line, "frame %u %u %u", kind, bytes, records);
    else
        snprintf(line, sizeof line, "json %u %.*s", kind, (int)bytes, (const char *)payload);
    say(line);
    return payload ? 0 : -1;
}

int brrr_yield(const char *who) { say("yield"); return who ? 0 : -1; }
void brrr_capture(int begins) { say(begins ? "capture" : "captured"); }
void brrr_graphs(int may_exist) { say(may_exist ? "graphs" : "no graphs"); }
int brrr_resume(void) { say("resume"); return 0; }
int brrr_stop(void) { if (!stopped) say("stop"); stopped = 1; return 0; }
