/* The agent in a program that is not Python: loaded by CUDA itself, or by a thread that was put there. */
#include <dlfcn.h>

#include "records.h"

#define PID "@PID@"
#define COMMAND_BYTES 2048
#define AGENT_VERSION "0.1.0" /* as collectors/agent/facts.py */

static const char *hello(void)
{
    static char json[8 * COMMAND_BYTES + 512];
    char words[COMMAND_BYTES], host[128] = "";
    struct text text = {json, sizeof json, 0, false};
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t bytes = file != NULL ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    words[bytes] = '\0';
    gethostname(host, sizeof host - 1);
    text_add(&text, "{\"wire\": %d, \"agent\": \"" AGENT_VERSION "\", \"pid\": %d, \"hostname\": ", WIRE_VERSION,
             getpid());
    text_quote(&text, host);
    text_add(&text, ", \"cmdline\": [");
    for (size_t i = 0; i < bytes; i += strlen(words + i) + 1) {
        text_add(&text, "%s", i ? "," : "");
        text_quote(&text, words + i);
    }
    text_add(&text, "]}");
    return text.cut ? "{}" : json;
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
