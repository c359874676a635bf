#include "core/waiter.h"

#include <utility>

#include "core/glibcxx.h"

namespace steptrain {

void Waiter::add(std::unique_ptr<Pending> pending, Failure origin) {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  push({std::move(pending), nullptr, std::move(origin), nullptr});
}

void Waiter::add(std::unique_ptr<Completion> completion, const Failure* failure) {
  if (!thread_.joinable()) return completion->done(failure);
  push({nullptr, std::move(completion), {}, failure});
}

void Waiter::push(Entry entry) {
  const std::lock_guard lock(mutex_);
  entries_.push_back(std::move(entry));
  added_.notify_one();
}

void Waiter::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return entries_.empty() && !busy_; });
}

void Waiter::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    added_.notify_one();
  }
  thread_.join();
}

void Waiter::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [&] { return !entries_.empty() || stopping_; });
    if (entries_.empty()) return;
    {
      Entry entry = std::move(entries_.front());
      entries_.pop_front();
      busy_ = true;
      lock.unlock();
      settle(entry);
    }
    lock.lock();
    busy_ = false;
    if (entries_.empty()) idle_.notify_all();
  }
}

void Waiter::settle(Entry& entry) {
  // What finishing found was queued before any failure that a later entry brings along.
  if (entry.completion) return entry.completion->done(found_ ? found_.get() : entry.failure);
  if (found_) return;
  const auto fail = [&](const Error& error) {
    found_ = std::make_unique<Failure>(std::move(entry.origin));
    found_->explain(error);
    failed_.store(true, std::memory_order_release);
  };
  try {
    entry.pending->finish();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error("E_DEVICE", error.what()));
  }
}

}  // namespace steptrain
