// Multiply-adds a second that this processor's registers allow, by every instruction that products are made of: peak THREADS
// SECONDS prints {"f32": FLOPs a second, "bf16": …}, the best of five rounds. Nothing is loaded or stored: no product can be faster.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kChains = 24;  // more than latency times instructions a clock, fewer than registers

/// `flops` of a step of one of `chains`.
struct F32 {
#if defined(__AVX512F__)
  using Vector = __m512;
  static Vector add(Vector a, Vector b) { return _mm512_fmadd_ps(b, b, a); }
  static constexpr double flops = 32;
  static constexpr int chains = kChains;
#elif defined(__FMA__)
  using Vector = __m256;
  static Vector add(Vector a, Vector b) { return _mm256_fmadd_ps(b, b, a); }
  static constexpr double flops = 16;
  static constexpr int chains = 12;
#elif defined(__aarch64__)
  using Vector = float32x4_t;
  static Vector add(Vector a, Vector b) { return vfmaq_f32(a, b, b); }
  static constexpr double flops = 8;
  static constexpr int chains = kChains;
#else
  using Vector = float;
  static Vector add(Vector a, Vector b) { return a + b * b; }
  static constexpr double flops = 2;
  static constexpr int chains = 8;
#endif

  /// So many steps of each chain.
  static void run(int64_t steps) {
    Vector sums[chains]{}, factor{};
    for (int64_t i = 0; i < steps; i++) {
#pragma GCC unroll 24
      for (int c = 0; c < chains; c++) {
        sums[c] = add(sums[c], factor);
#if defined(__x86_64__)
        asm volatile("" : "+v"(sums[c]), "+v"(factor));
#else
        asm volatile("" : "+w"(sums[c]), "+w"(factor));
#endif
      }
    }
  }
};

#if defined(__AVX512BF16__)
struct Bf16 {
  static constexpr double flops = 64;
  static constexpr int chains = kChains;
  static void run(int64_t steps) {
    __m512 sums[chains]{};
    __m512bh factor{};
    for (int64_t i = 0; i < steps; i++) {
#pragma GCC unroll 24
      for (int c = 0; c < chains; c++) {
        sums[c] = _mm512_dpbf16_ps(sums[c], factor, factor);
        asm volatile("" : "+v"(sums[c]), "+v"(factor));
      }
    }
  }
};
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct Bf16 {
  static constexpr double flops = 32;
  static constexpr int chains = kChains;
  static void run(int64_t steps) {
    float32x4_t sums[chains]{};
    bfloat16x8_t factor{};
    for (int64_t i = 0; i < steps; i++) {
#pragma GCC unroll 24
      for (int c = 0; c < chains; c++) {
        sums[c] = vbfmmlaq_f32(sums[c], factor, factor);
        asm volatile("" : "+w"(sums[c]), "+w"(factor));
      }
    }
  }
};
#else
using Bf16 = F32;  // widened first
#endif

#if defined(__AMX_BF16__) && defined(__linux__)
struct Tiles {
  static constexpr double flops = 2.0 * 16 * 16 * 32;
  static constexpr int chains = 4;
  /// Whether the kernel lets this process use them.
  static bool allowed() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
  static void run(int64_t steps) {
    alignas(64) unsigned char config[64] = {1};
    for (int tile = 0; tile < 8; tile++) {
      config[16 + 2 * tile] = 64;
      config[48 + tile] = 16;
    }
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t i = 0; i < steps; i++) {
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 5);
      _tile_dpbf16ps(2, 4, 5);
      _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
  }
};
#endif

/// FLOPs a second of all threads together.
template <typename Loop>
double peak(int threads, double seconds) {
  constexpr int64_t kSteps = 20'000;
  double best = 0;
  for (int round = 0; round < 5; round++) {
    std::atomic<int> ready{0};
    std::atomic<int64_t> runs{0};
    std::vector<std::thread> all;
    const auto until = [&] { return Clock::now() + std::chrono::duration<double>(seconds / 5); };
    const auto began = Clock::now();
    for (int t = 0; t < threads; t++) {
      all.emplace_back([&] {
        for (ready++; ready < threads;) std::this_thread::yield();
        for (const auto end = until(); Clock::now() < end; runs++) Loop::run(kSteps);
      });
    }
    for (auto& thread : all) thread.join();
    const double took = std::chrono::duration<double>(Clock::now() - began).count();
    best = std::max(best, static_cast<double>(runs) * kSteps * Loop::chains * Loop::flops / took);
  }
  return best;
}

}  // namespace

int main(int count, char** words) {
  const int threads = count > 1 ? std::atoi(words[1]) : 1;
  const double seconds = count > 2 ? std::atof(words[2]) : 1;
  const double f32 = peak<F32>(threads, seconds);
  double bf16 = peak<Bf16>(threads, seconds);
#if defined(__AMX_BF16__) && defined(__linux__)
  if (Tiles::allowed()) bf16 = std::max(bf16, peak<Tiles>(threads, seconds));
#endif
  std::printf("{\"f32\": %.4g, \"bf16\": %.4g}\n", f32, std::max(f32, bf16));
}
