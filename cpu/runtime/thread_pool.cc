#include "cpu/runtime/thread_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <exception>

#include "core/glibcxx.h"

namespace steptrain::cpu {
namespace {

constexpr auto kSpin = std::chrono::microseconds(100);
constexpr int kNice = 10;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void lower_priority() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; i++) members_.emplace_back([this, i] { loop(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (auto& member : members_) member.join();
}

void ThreadPool::work(int index) {
  Worker worker(*this, index, threads_);
  try {
    (*body_)(worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::region(const std::function<void(Worker&)>& body) {
  regions_++;
  for (auto& task : tasks_) task.value.store(0, std::memory_order_relaxed);
  body_ = &body;
  error_ = nullptr;
  if (threads_ > 1) {
    running_ = threads_ - 1;
    {
      const std::lock_guard lock(mutex_);
      epoch_++;
    }
    wake_.notify_all();
  }
  work(0);
  // The others are at most one task behind. Yield, in case they have no core to run on.
  for (int spins = 0; running_.load() > 0; spins++) {
    if (spins < 4000) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::run(int64_t n, const std::function<void(int64_t)>& body) {
  region([&](Worker& worker) {
    for (int64_t task; (task = worker.next()) < n;) body(task);
  });
}

void ThreadPool::loop(int index) {
  lower_priority();
  uint64_t seen = 0;
  while (true) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (epoch_.load() == seen && !stopping_) {
      if (std::chrono::steady_clock::now() < until) {
        pause();
        continue;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return epoch_.load() != seen || stopping_; });
    }
    if (stopping_) return;
    seen = epoch_.load();
    work(index);
    running_--;
  }
}

int64_t Worker::next(int phase) {
  return pool_.tasks_[phase].value.fetch_add(1, std::memory_order_relaxed);
}

void Worker::barrier() {
  const uint64_t generation = pool_.generation_.load();
  if (pool_.arrived_.fetch_add(1) + 1 == count) {
    pool_.arrived_ = 0;
    pool_.generation_++;
    return;
  }
  for (int spins = 0; pool_.generation_.load() == generation; spins++) {
    if (spins < 4000) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace steptrain::cpu
