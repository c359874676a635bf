// What a device must offer to the runtime. Called on the queue thread unless a comment says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/record.h"

namespace steptrain {

struct BackendInfo {
  std::string name;         // cpu, cuda:0
  std::string description;  // model of the processor
  std::string isa;          // amx, sm_90, …
  int threads = 0;
  int64_t memory_total = 0;
  int64_t memory_free = 0;
};

/// Counters by which tests see that an op is fused and that nothing waits.
struct Counters {
  int64_t ops = 0;
  int64_t launches = 0;       // CUDA kernels, or CPU parallel regions
  int64_t scratch_bytes = 0;  // max workspace of an op so far
  int64_t waits = 0;          // for a GPU: parts of reads, synchronize, full buffers
  double kernel_seconds = 0;  // that the queue's thread spent in CPU kernels
};

/// Launched work that the host waits for.
class Pending {
 public:
  virtual ~Pending() = default;
  /// On the waiter's thread: returns when it is done; throws what launched work failed with.
  virtual void finish() = 0;
};

class Backend {
 public:
  /// Takes, in order, what must have finished before a wait is over.
  using Later = std::function<void(std::unique_ptr<Pending>)>;

  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;  // any thread

  virtual void* acquire(int64_t bytes) = 0;             // host thread
  virtual void release(void* data, int64_t bytes) = 0;  // host thread, queue drained or stopped
  /// Bytes of a packed weight, at least those of its values. Host thread.
  virtual int64_t packed_bytes(const TensorView& weight) const = 0;
  virtual bool has(int op) const = 0;  // host thread

  /// Once, on the queue thread, before anything else.
  virtual void start() = 0;
  virtual void run(int op, const Args& args) = 0;
  virtual void upload(const TensorView& target, const void* bytes) = 0;
  /// The bytes are there when everything passed to `later` has finished.
  virtual void download(const TensorView& source, void* bytes, const Later& later) = 0;
  /// Replays a graph; the default runs the records one by one.
  virtual void replay(Graph& graph) {
    for (const Record& record : graph.records) run(record.op, record.args);
  }
  /// Passes on what finishes with the launched work. The default: nothing is ever under way.
  virtual void signal(const Later&) {}
  /// Waits for launched work; throws what it failed with. Also called where start() or an op has failed.
  virtual void synchronize() = 0;
  virtual Counters counters() const = 0;  // any thread, after a wait
};

}  // namespace steptrain
