#include "world_layout.h"

#include <link.h>
#include <string.h>

/* A runtime linked into a program cannot be told from the program: so nothing of the runtime's API is
 * switched where the world is held (trace.c), and the driver's library is what counts. */
static const char *const CUDA[] = {"libcuda.so", "libcudart", "libcudadebugger", "libcupti", "libnvidia-", "libnvperf"};
static const char *const SYSTEM[] = {"libc.so",     "libc-",      "ld-linux",  "ld-2",         "ld-musl",
                                     "libpthread",  "libdl",      "librt",     "libstdc++",    "libgcc_s",
                                     "libjemalloc", "libtcmalloc", "libmimalloc", "linux-vdso", "libasan",
                                     "libtsan"};

static bool add(struct code_ranges *ranges, uint64_t start, uint64_t end)
{
    if (ranges->count == CODE_RANGES)
        return false;
    ranges->of[ranges->count].start = start;
    ranges->of[ranges->count++].end = end;
    if (start < ranges->least)
        ranges->least = start;
    if (end > ranges->most)
        ranges->most = end;
    return true;
}

static bool begins(const char *name, const char *const *with, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, with[i], strlen(with[i])) == 0)
            return true;
    return false;
}

static int look(struct dl_phdr_info *info, size_t size, void *given)
{
    (void)size;
    struct world_layout *out = given;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    bool cuda = begins(name, CUDA, sizeof CUDA / sizeof CUDA[0]);
    bool system = begins(name, SYSTEM, sizeof SYSTEM / sizeof SYSTEM[0]);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        bool ours = (uint64_t)(uintptr_t)world_layout_read >= start &&
                    (uint64_t)(uintptr_t)world_layout_read < end;
        if (cuda && !add(&out->cuda, start, end))
            return 1;
        if (!cuda && (system || ours) && !add(&out->system, start, end))
            return 1;
    }
    return 0;
}

bool world_layout_read(struct world_layout *out)
{
    memset(out, 0, sizeof *out);
    out->cuda.least = out->system.least = UINT64_MAX;
    return dl_iterate_phdr(look, out) == 0;
}
