// A thread beside the queue's, on which bytes travel between processes while kernels run.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace steptrain::cpu {

/// Runs what it is given, one after the other. Called by the queue's thread alone.
class Beside {
 public:
  Beside() = default;
  /// Waits for what runs.
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  /// The first call starts the thread.
  void give(std::function<void()> work);
  /// Returns when all has run; throws what the first failed with, after which nothing has run.
  void wait();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> left_;  // the first of them runs
  std::exception_ptr failed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace steptrain::cpu
