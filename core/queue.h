// The in-order queue of one device: one producer (the host thread), one native thread that runs the records.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/backend.h"
#include "core/waiter.h"

namespace steptrain {

class Queue {
 public:
  explicit Queue(std::unique_ptr<Backend> backend);
  ~Queue();

  /// Cancels what is queued, waits for what runs, joins the thread.
  void stop();
  /// Blocks the host thread until everything queued has run and the backend is idle, failed or not. What it
  /// failed with is found by the next wait.
  void drain();

  /// The next record, to be filled in place and then committed; a record that is not committed is reused.
  Record& reserve();
  void commit();
  Backend& backend() { return *backend_; }
  /// Interned label of the scope that an op was queued in, for error messages.
  int scope_label(const std::string& label);

 private:
  static constexpr size_t kChunk = 256;
  struct Chunk {
    std::array<Record, kChunk> records;
    std::atomic<size_t> written{0};
    std::atomic<Chunk*> next{nullptr};
  };

  void loop();
  bool wait_for_work(const Chunk& chunk, size_t read);
  void settle();
  void execute(Record& record);
  void run(Record& record);
  Failure origin_of(const Record& record);
  void fail(const Record& record, const Error& error);

  std::unique_ptr<Backend> backend_;
  Chunk* head_;  // the thread's
  Chunk* tail_;  // the producer's
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> draining_{false};
  std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::unique_ptr<Failure> poison_;  // the thread's, never changed once it is there
  Waiter waiter_;                    // the thread's
  std::mutex labels_mutex_;
  std::deque<std::string> labels_{""};
  std::thread thread_;
};

}  // namespace steptrain
