#include "cpu/runtime/thread_pool.h"

namespace steptrain::cpu {

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; i++) members_.emplace_back([this, i] { loop(i); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  call_.notify();
  for (auto& member : members_) member.join();
}

void ThreadPool::work(int index) {
  Worker worker(*this, index);
  try {
    (*body_)(worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::region(const std::function<void(Worker&)>& body) {
  regions_.fetch_add(1, std::memory_order_relaxed);
  for (auto& task : tasks_) task.value.store(0, std::memory_order_relaxed);
  body_ = &body;
  error_ = nullptr;
  attendance_ = Attendance{.present = 1, .open = 1};
  called_++;
  call_.notify();
  work(0);
  // No task is left. Some may still be in work.
  leave(true);
  end_.await([&] { return attendance_.load().present == 0; });
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::run(int64_t n, const std::function<void(int64_t)>& body) {
  region([&](Worker& worker) {
    for (int64_t task; (task = worker.next()) < n;) body(task);
  });
}

void ThreadPool::loop(int index) {
  uint32_t seen = 0;
  while (true) {
    call_.await([&] { return called_ != seen || stopping_; });
    if (stopping_) return;
    seen = called_;
    if (!join()) continue;
    work(index);
    leave(false);
  }
}

template <typename Change>
ThreadPool::Attendance ThreadPool::update(const Change& change) {
  Attendance before = attendance_, after;
  do {
    after = before;
    change(after);
  } while (!attendance_.compare_exchange_weak(before, after));
  return after;
}

bool ThreadPool::join() {
  bool joined = false;
  update([&](Attendance& now) {
    joined = now.open;
    if (joined) now.present++;
  });
  return joined;
}

void ThreadPool::leave(bool close) {
  bool last_at_barrier = false;
  const Attendance after = update([&](Attendance& now) {
    now.present--;
    if (close) now.open = 0;
    // Only one that threw leaves while others wait for it.
    last_at_barrier = now.present > 0 && now.waiting == now.present;
    if (last_at_barrier) {
      now.barriers++;
      now.waiting = 0;
    }
  });
  if (last_at_barrier) barrier_.notify();
  if (after.present == 0) end_.notify();
}

int64_t Worker::next(int phase) {
  return pool_.tasks_[phase].value.fetch_add(1, std::memory_order_relaxed);
}

void Worker::barrier() {
  const uint32_t mine = ++barriers_;
  bool over = false, last = false;
  pool_.update([&](ThreadPool::Attendance& now) {
    over = now.barriers >= mine;
    last = !over && now.waiting + 1 == now.present;
    if (last) {
      now.barriers++;
      now.waiting = 0;
    } else if (!over) {
      now.waiting++;
    }
  });
  if (last) pool_.barrier_.notify();
  if (last || over) return;
  pool_.barrier_.await([&] { return pool_.attendance_.load().barriers >= mine; });
}

}  // namespace steptrain::cpu
