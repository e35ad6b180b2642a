/* A libcuda.so.1 with one device, whose context a test wakes. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_int awake = 1;

EXPORT void fake_cuda_awake(int on) { atomic_store(&awake, on); }

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 0;
    if (device > 0)
        return 101; /* CUDA_ERROR_INVALID_DEVICE */
    *active = atomic_load(&awake);
    return 0;
}

static atomic_int capture_mode;
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
    *mode = atomic_exchange(&capture_mode, *mode);
    return 0;
}

/* As the driver does: the library that the environment names is loaded, and told so, before all else. */
EXPORT int cuInit(unsigned flags)
{
    static atomic_int done;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = flags || path == NULL || atomic_exchange(&done, 1) ? NULL : dlopen(path, RTLD_NOW);
    int (*begin)(void) = NULL;
    if (library != NULL)
        *(void **)&begin = dlsym(library, "InitializeInjection");
    return begin != NULL && begin() == 0 ? 999 : 0;
}
