/* The agent in a program that is not Python: loaded by CUDA itself, or by a thread that was put there. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "brrrtop_agent.h"
#include "clock.h"

#define PID "@PID@"
#define COMMAND_BYTES 2048
#define AGENT_VERSION "0.1.0" /* as collectors/agent/facts.py */

/* The command line as words of JSON. */
static void put_command(char *out, size_t room)
{
    char words[COMMAND_BYTES];
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t bytes = file != NULL ? fread(words, 1, sizeof words - 1, file) : 0, at = 0;
    if (file != NULL)
        fclose(file);
    words[bytes] = '\0';
    for (size_t i = 0; i < bytes; i += strlen(words + i) + 1) {
        if (at + 6 * strlen(words + i) + 4 > room)
            break;
        at += (size_t)snprintf(out + at, room - at, "%s\"", at ? "," : "");
        for (const char *c = words + i; *c; c++) {
            if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
                out[at++] = '?';
            else if (*c == '"' || *c == '\\')
                out[at++] = '\\', out[at++] = *c;
            else
                out[at++] = *c;
        }
        out[at++] = '"';
    }
    out[at] = '\0';
}

static char *hello(void)
{
    static char text[8 * COMMAND_BYTES + 512];
    char command[7 * COMMAND_BYTES] = "", host[128] = "";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c < '-' || *c > 'z' || *c == '\\')
            *c = '?';
    put_command(command, sizeof command);
    int64_t before_ns = mono_ns(), now_ns = real_ns(), after_ns = mono_ns();
    snprintf(text, sizeof text,
             "{\"wire\": 1, \"agent\": \"" AGENT_VERSION "\", \"pid\": %d, \"hostname\": \"%s\", \"cmdline\": [%s], "
             "\"clock\": {\"realtime_ns\": %lld, \"monotonic_ns\": %lld}}",
             getpid(), host, command, (long long)now_ns, (long long)(before_ns + (after_ns - before_ns) / 2));
    return text;
}

int brrr_inject(const char *text)
{
    char path[512], refused[540];
    if (text == NULL)
        return BRRR_E_ARGUMENT;
    const char *options = strchr(text, '\n'), *pid = strstr(text, PID);
    size_t bytes = options != NULL ? (size_t)(options - text) : strlen(text);
    if (bytes >= sizeof path - 12)
        return BRRR_E_ARGUMENT;
    if (pid != NULL && (size_t)(pid - text) < bytes)
        snprintf(path, sizeof path, "%.*s%d%.*s", (int)(pid - text), text, getpid(),
                 (int)(bytes - (size_t)(pid - text) - strlen(PID)), pid + strlen(PID));
    else
        snprintf(path, sizeof path, "%.*s", (int)bytes, text);
    int code = brrr_start(path, hello(), options != NULL ? options + 1 : "");
    snprintf(refused, sizeof refused, "%s.refused", path);
    if (code != BRRR_OK && symlink(brrr_last_error(), refused) != 0)
        return code;
    return code;
}

static bool in_python(void)
{
    int (*there)(void);
    *(void **)&there = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return there != NULL && there();
}

/* CUDA takes 0 for a failure, and says so; ours is no concern of the program's. */
int InitializeInjection(void)
{
    const char *text = getenv("BRRRTOP_INJECT");
    if (text != NULL && !in_python())
        brrr_inject(text);
    return 1;
}
