// The compute threads of one CPU device. The queue's thread is member 0, so a one-thread pool starts no thread.
// Whoever has a core works: a region begins with member 0 alone, the others take part from when they come, and
// nobody waits for one that other processes keep from its core, unless it holds a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/runtime/event_count.h"

namespace steptrain::cpu {

class ThreadPool;

/// A member's view of one parallel region.
class Worker {
 public:
  /// Below the number of threads; 0 takes part in every region from its beginning.
  int index;
  /// Waits until every member that takes part has come here. Results do not depend on which member took a task, nor
  /// on how many take part: tasks follow from shapes alone.
  void barrier();
  /// The next task of `phase` (0–7): 0, 1, … until ≥ n. Each phase has its own counter, so two phases of a
  /// region need a barrier between them only where one reads what the other wrote.
  int64_t next(int phase = 0);

 private:
  friend class ThreadPool;
  Worker(ThreadPool& pool, int index) : index(index), pool_(pool) {}
  ThreadPool& pool_;
  uint32_t barriers_ = 0;
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  /// Runs `body` on member 0 and on the others that come before it has finished there, and returns when all of them
  /// have finished. A member that comes late finds the tasks of earlier phases taken and passes the barriers that are
  /// over, so a body must take all its work from next(). The first exception is rethrown; the others go on without
  /// the member that threw.
  void region(const std::function<void(Worker&)>& body);
  /// body(task) for each task in [0, n), taken in order by whichever member is free.
  void run(int64_t n, const std::function<void(int64_t)>& body);
  int64_t regions() const { return regions_; }

 private:
  friend class Worker;
  /// Who takes part in the region, in one word, so that members which come, wait and leave at once agree.
  struct Attendance {
    uint32_t barriers = 0;  // that are over
    uint16_t present = 0;
    uint16_t waiting : 15 = 0;  // of those present, at the next barrier
    uint16_t open : 1 = 0;      // others may come
  };
  static_assert(std::atomic<Attendance>::is_always_lock_free);

  /// Attendance before and after `change`, which may be tried several times.
  template <typename Change>
  Attendance update(const Change& change);
  bool join();
  void leave(bool close);
  void loop(int index);
  void work(int index);

  int threads_;
  std::atomic<int64_t> regions_{0};
  std::atomic<uint32_t> called_{0};  // regions, for members that wait for one
  std::atomic<bool> stopping_{false};
  const std::function<void(Worker&)>* body_ = nullptr;
  struct alignas(64) Counter {
    std::atomic<int64_t> value{0};
  };
  Counter tasks_[8];
  alignas(64) std::atomic<Attendance> attendance_{Attendance{}};
  EventCount call_, barrier_, end_;
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> members_;
};

}  // namespace steptrain::cpu
