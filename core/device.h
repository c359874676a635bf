// One device as the host sees it: handles, allocation, checked queueing, capture. All calls come from the
// host thread; kernels run on the queue's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/ops.h"
#include "core/queue.h"

namespace steptrain {

/// slot + generation · 2^24, so that a stale handle is recognised. Exact in a double.
using Handle = int64_t;
constexpr Handle kAbsent = 0;
constexpr Handle kAllocate = -1;

/// Memory of a tensor and its views.
struct Buffer {
  Allocator::Block* block;
  int64_t bytes;
  int references;
  std::shared_ptr<GraphPool> pool;  // that the block belongs to, if any
  int64_t capture;                  // that made it; 0: none
};

class Device {
 public:
  /// `memory_limit`: max bytes of all tensors, workspace not counted.
  explicit Device(std::unique_ptr<Backend> backend, int64_t memory_limit = kNoLimit);
  ~Device();

  Handle allocate(DType dtype, const std::vector<int64_t>& shape);
  /// A window on the buffer of `handle`, `offset` elements in; holds its own reference. Of packed weights whole ones.
  Handle view(Handle handle, int64_t offset, const std::vector<int64_t>& shape);
  void release(Handle handle);
  /// The tensor behind a handle. Throws Error(E_HANDLE).
  const TensorView& tensor(Handle handle) const;

  /// Checks and queues one op. `handles` (inputs, outputs) is updated with the outputs that were allocated.
  /// Returns the op's number.
  int64_t enqueue(int op, Handle* handles, const double* scalars);
  void upload(Handle target, const void* bytes, int64_t size);
  void download(Handle source, void* destination, std::unique_ptr<Completion> completion);
  void signal(std::unique_ptr<Completion> completion);

  /// Memory that several captures may share. Theirs is freed with the last of them, once this is released too.
  int64_t new_pool();
  void release_pool(int64_t pool);
  /// `pool`: the memory of what is captured; 0: a pool of its own.
  void begin_capture(int64_t pool = 0);
  /// Closes the capture; returns the graph's id, or 0 when it is thrown away.
  int64_t end_capture(bool keep);
  void replay(int64_t graph);
  void release_graph(int64_t graph);

  void set_scope(int label) { scope_ = label; }
  Queue& queue() { return *queue_; }
  /// Without released graphs whose replays have ended.
  const AllocatorStats& memory() {
    purge_graphs();
    return allocator_->stats();
  }
  void reset_peak() { allocator_->reset_peak(); }
  int64_t tensors() const { return live_tensors_; }

 private:
  struct Slot {
    TensorView view;
    Buffer* buffer = nullptr;
    int64_t generation = 1;
  };

  void fill(Record& record, int op, Handle* handles, const double* scalars);
  Slot& slot(Handle handle);
  Handle insert(const TensorView& view, Buffer* buffer);
  Buffer* new_buffer(int64_t bytes);
  int64_t bytes_of(const TensorView& view) const;
  /// Bytes from packed weights to a view of whole ones, `offset` elements in.
  int64_t packed_offset(const TensorView& source, const TensorView& view, int64_t offset) const;
  void drop(Buffer* buffer);
  void keep_for_replay(Buffer* buffer);

  void purge_graphs();

  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Allocator> allocator_;
  std::vector<Slot> slots_;
  std::vector<int64_t> free_slots_;
  std::shared_ptr<Graph> capturing_;
  int64_t capture_ = 0;  // number of the latest
  std::map<int64_t, std::shared_ptr<GraphPool>> pools_;
  int64_t next_pool_ = 1;
  std::map<int64_t, std::shared_ptr<Graph>> graphs_;
  std::vector<std::shared_ptr<Graph>> retired_;  // released, perhaps still queued or with tensors in use
  int64_t next_graph_ = 1;
  int64_t number_ = 0;
  int64_t live_tensors_ = 0;
  int scope_ = 0;
};

}  // namespace steptrain
