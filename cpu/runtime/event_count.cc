#include "cpu/runtime/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace steptrain::cpu {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain word");

/// Waking a sleeping thread costs tens of microseconds, so it sleeps only after this long.
const std::chrono::nanoseconds EventCount::kSpin = std::chrono::microseconds(100);

/// Returns when woken, for no reason, or at once if something happened since `seen` was read.
void EventCount::sleep(uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&events_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void EventCount::wake() {
  events_.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&events_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace steptrain::cpu
