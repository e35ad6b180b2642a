/* A libcuda.so.1 with one device, whose context a test wakes. */
#include <stdatomic.h>

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
