// Four threads, each with a stream: small kernels, now and then a copy back and a wait. Prints a line a
// thread and thousand rounds: what it computed is the same whoever watches.
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>
#include <cuda_runtime.h>

__global__ void mix(uint32_t *x, uint32_t n, uint32_t round) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { uint32_t v = x[i] ^ (round * 2654435761u); v ^= v << 13; v ^= v >> 17; v ^= v << 5; x[i] = v + i; }
}

static std::mutex printing;
static const uint32_t N = 1 << 16;

static bool ok(cudaError_t code) {
  if (code != cudaSuccess) fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(code));
  return code == cudaSuccess;
}

static void work(int number) {
  cudaStream_t stream; uint32_t *x, *host;
  if (!ok(cudaStreamCreate(&stream)) || !ok(cudaMalloc(&x, N * 4)) || !ok(cudaMallocHost(&host, N * 4))) exit(1);
  if (!ok(cudaMemsetAsync(x, number, N * 4, stream))) exit(1);
  for (uint32_t round = 1;; round++) {
    mix<<<N / 256, 256, 0, stream>>>(x, N, round);
    if (round % 50 == 0 && !ok(cudaStreamSynchronize(stream))) exit(1);
    if (round % 1000) continue;
    if (!ok(cudaMemcpyAsync(host, x, N * 4, cudaMemcpyDeviceToHost, stream)) || !ok(cudaStreamSynchronize(stream))) exit(1);
    uint64_t sum = 1469598103934665603ull;
    for (uint32_t i = 0; i < N; i++) sum = (sum ^ host[i]) * 1099511628211ull;
    std::lock_guard<std::mutex> hold(printing);
    printf("%d.%u %016llx\n", number, round / 1000, (unsigned long long)sum);
    fflush(stdout);
  }
}

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) threads.emplace_back(work, i);
  for (auto &one : threads) one.join();
}
