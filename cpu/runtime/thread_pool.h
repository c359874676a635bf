// The compute threads of one CPU device. The queue's thread is member 0, so a one-thread pool starts no
// thread. Members run at a lower priority than JavaScript, spin briefly between regions and then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace steptrain::cpu {

class ThreadPool;

/// A member's view of one parallel region.
class Worker {
 public:
  int index;
  int count;
  /// Waits for every member. Results do not depend on which member took a task:
  /// tasks follow from shapes alone.
  void barrier();
  /// The next task of `phase` (0–7): 0, 1, … until ≥ n. Each phase has its own counter, so two phases of a
  /// region need a barrier between them only where one reads what the other wrote.
  int64_t next(int phase = 0);

 private:
  friend class ThreadPool;
  Worker(ThreadPool& pool, int index, int count) : index(index), count(count), pool_(pool) {}
  ThreadPool& pool_;
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  /// Runs `body` on every member and returns when all have finished. The first exception is rethrown. A
  /// member that throws still takes part in later barriers, so a body with barriers must make its checks
  /// before the first one.
  void region(const std::function<void(Worker&)>& body);
  /// body(task) for each task in [0, n), taken in order by whichever member is free.
  void run(int64_t n, const std::function<void(int64_t)>& body);
  int64_t regions() const { return regions_; }

 private:
  friend class Worker;
  void loop(int index);
  void work(int index);

  int threads_;
  std::atomic<int64_t> regions_{0};
  std::atomic<uint64_t> epoch_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
  const std::function<void(Worker&)>* body_ = nullptr;
  struct alignas(64) Counter {
    std::atomic<int64_t> value{0};
  };
  Counter tasks_[8];
  alignas(64) std::atomic<int> arrived_{0};
  std::atomic<uint64_t> generation_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::exception_ptr error_;
  std::vector<std::thread> members_;
};

/// Lowers the calling thread's priority, so that compute never starves the event loop.
void lower_priority();

}  // namespace steptrain::cpu
