// Settles what the host waits for, in the order of queueing, on a thread of its own: the queue's thread goes on while the
// device still computes. The thread starts with the first thing to wait for; until then, so always on the CPU, whoever
// waits is told at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "core/backend.h"

namespace steptrain {

class Waiter {
 public:
  ~Waiter() { stop(); }

  // On the queue's thread:
  /// Has `pending` finished before what is added later is told. `origin`: number and scope of what waits for it, for
  /// the case that finishing it fails.
  void add(std::unique_ptr<Pending> pending, Failure origin);
  /// Tells `completion` of `failure`, or of an earlier one that finishing found.
  void add(std::unique_ptr<Completion> completion, const Failure* failure);
  /// Returns once everything added has been told.
  void drain();
  /// The same, then ends the thread.
  void stop();

  /// Whether finishing something has failed: nothing should be queued any more.
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  struct Entry {
    std::unique_ptr<Pending> pending;
    std::unique_ptr<Completion> completion;
    Failure origin;
    const Failure* failure = nullptr;
  };
  void push(Entry entry);
  void loop();
  void settle(Entry& entry);

  std::mutex mutex_;
  std::condition_variable added_, idle_;
  std::deque<Entry> entries_;
  bool busy_ = false;
  bool stopping_ = false;
  std::unique_ptr<Failure> found_;  // the thread's
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace steptrain
