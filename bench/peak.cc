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

#if defined(__x86_64__)
#define STEPTRAIN_IN_REGISTER(x) asm volatile("" : "+v"(x))
#else
#define STEPTRAIN_IN_REGISTER(x) asm volatile("" : "+w"(x))
#endif

/// `steps` multiply-adds of each chain: Instruction has what it adds, its FLOPs, and chains enough.
template <typename Instruction>
struct Loop {
  static constexpr double flops = Instruction::flops;
  static constexpr int chains = Instruction::chains;

  static void run(int64_t steps) {
    typename Instruction::Sum sums[chains]{};
    typename Instruction::Factor factor{};
    for (int64_t i = 0; i < steps; i++) {
#pragma GCC unroll 24
      for (int c = 0; c < chains; c++) {
        sums[c] = Instruction::add(sums[c], factor);
        STEPTRAIN_IN_REGISTER(sums[c]);
        STEPTRAIN_IN_REGISTER(factor);
      }
    }
  }
};

struct F32 {
#if defined(__AVX512F__)
  using Sum = __m512;
  using Factor = Sum;
  static Sum add(Sum sum, Factor x) { return _mm512_fmadd_ps(x, x, sum); }
  static constexpr double flops = 32;
  static constexpr int chains = kChains;
#elif defined(__FMA__)
  using Sum = __m256;
  using Factor = Sum;
  static Sum add(Sum sum, Factor x) { return _mm256_fmadd_ps(x, x, sum); }
  static constexpr double flops = 16;
  static constexpr int chains = 12;
#elif defined(__aarch64__)
  using Sum = float32x4_t;
  using Factor = Sum;
  static Sum add(Sum sum, Factor x) { return vfmaq_f32(sum, x, x); }
  static constexpr double flops = 8;
  static constexpr int chains = kChains;
#else
  using Sum = float;
  using Factor = Sum;
  static Sum add(Sum sum, Factor x) { return sum + x * x; }
  static constexpr double flops = 2;
  static constexpr int chains = 8;
#endif
};

#if defined(__AVX512BF16__)
struct Bf16 {
  using Sum = __m512;
  using Factor = __m512bh;
  static Sum add(Sum sum, Factor x) { return _mm512_dpbf16_ps(sum, x, x); }
  static constexpr double flops = 64;
  static constexpr int chains = kChains;
};
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct Bf16 {
  using Sum = float32x4_t;
  using Factor = bfloat16x8_t;
  static Sum add(Sum sum, Factor x) { return vbfmmlaq_f32(sum, x, x); }
  static constexpr double flops = 32;
  static constexpr int chains = kChains;
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
template <typename Work>
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
        for (const auto end = until(); Clock::now() < end; runs++) Work::run(kSteps);
      });
    }
    for (auto& thread : all) thread.join();
    const double took = std::chrono::duration<double>(Clock::now() - began).count();
    best = std::max(best, static_cast<double>(runs) * kSteps * Work::chains * Work::flops / took);
  }
  return best;
}

}  // namespace

int main(int count, char** words) {
  const int threads = count > 1 ? std::atoi(words[1]) : 1;
  const double seconds = count > 2 ? std::atof(words[2]) : 1;
  const double f32 = peak<Loop<F32>>(threads, seconds);
  double bf16 = peak<Loop<Bf16>>(threads, seconds);
#if defined(__AMX_BF16__) && defined(__linux__)
  if (Tiles::allowed()) bf16 = std::max(bf16, peak<Tiles>(threads, seconds));
#endif
  std::printf("{\"f32\": %.4g, \"bf16\": %.4g}\n", f32, std::max(f32, bf16));
}
