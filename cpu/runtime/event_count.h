// Waiting for a condition that another thread makes true: a short look, then sleep on a futex, so that a thread
// which waits leaves its core to whoever else has work. Telling nobody costs one load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace steptrain::cpu {

class EventCount {
 public:
  /// Returns once `ready()` is true. What it reads must be atomic and sequentially consistent, and whoever
  /// changes it calls notify() afterwards.
  template <typename Ready>
  void await(const Ready& ready) {
    using Clock = std::chrono::steady_clock;
    if (ready()) return;
    const auto until = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 8; i++) {
        pause();
        if (ready()) return;
      }
    } while (Clock::now() < until);
    // Either the notifier sees the sleeper, or the sleeper sees what the notifier changed.
    sleepers_.fetch_add(1);
    for (uint32_t seen; seen = events_.load(), !ready();) sleep(seen);
    sleepers_.fetch_sub(1);
  }
  void notify() {
    if (sleepers_.load() > 0) wake();
  }

 private:
  static const std::chrono::nanoseconds kSpin;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  void sleep(uint32_t seen);
  void wake();

  std::atomic<uint32_t> events_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace steptrain::cpu
