#include "cpu/runtime/beside.h"

#include <utility>

#include "core/glibcxx.h"

namespace steptrain::cpu {

Beside::~Beside() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Beside::give(std::function<void()> work) {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  {
    const std::lock_guard lock(mutex_);
    left_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Beside::wait() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return left_.empty(); });
  if (failed_) std::rethrow_exception(failed_);
}

void Beside::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !left_.empty(); });
    if (left_.empty()) return;
    if (!failed_) {
      const auto& work = left_.front();  // stays where it is when others come
      lock.unlock();
      std::exception_ptr failed;
      try {
        work();
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      failed_ = failed;
    }
    left_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace steptrain::cpu
