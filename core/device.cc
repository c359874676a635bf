#include "core/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace steptrain {
namespace {
constexpr int64_t kSlotBits = 24;
constexpr int64_t kSlotMask = (int64_t{1} << kSlotBits) - 1;
}  // namespace

Device::Device(std::unique_ptr<Backend> backend, int64_t memory_limit) {
  Backend* raw = backend.get();
  queue_ = std::make_unique<Queue>(std::move(backend));
  const auto settle = [this] {
    queue_->drain();
    purge_graphs();
  };
  allocator_ = std::make_unique<Allocator>([raw](int64_t bytes) { return raw->acquire(bytes); },
                                           [raw](void* data, int64_t bytes) { raw->release(data, bytes); },
                                           settle, memory_limit);
  slots_.resize(1);  // handle 0 is "absent"
}

Device::~Device() {
  queue_->stop();  // first: a running op still uses the memory
  for (Slot& s : slots_) {
    if (s.buffer) drop(std::exchange(s.buffer, nullptr));
  }
  if (capturing_) end_capture(false);
  for (auto& [id, graph] : graphs_) retired_.push_back(std::move(graph));
  purge_graphs();
}

Device::Slot& Device::slot(Handle handle) {
  const int64_t index = handle & kSlotMask;
  if (handle <= 0 || index >= static_cast<int64_t>(slots_.size()) ||
      slots_[static_cast<size_t>(index)].generation != handle >> kSlotBits ||
      !slots_[static_cast<size_t>(index)].buffer) {
    throw Error("E_HANDLE", "a tensor was used after it was disposed, or on another device than its own");
  }
  return slots_[static_cast<size_t>(index)];
}

const TensorView& Device::tensor(Handle handle) const {
  return const_cast<Device*>(this)->slot(handle).view;
}

Handle Device::insert(const TensorView& view, Buffer* buffer) {
  int64_t index;
  if (free_slots_.empty()) {
    index = static_cast<int64_t>(slots_.size());
    if (index > kSlotMask)
      throw Error("E_MEMORY", "more than 16 million live tensors: tensors are not being disposed");
    slots_.emplace_back();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& s = slots_[static_cast<size_t>(index)];
  s.view = view;
  s.buffer = buffer;
  buffer->references++;
  live_tensors_++;
  return index | s.generation << kSlotBits;
}

Buffer* Device::new_buffer(int64_t bytes) {
  if (!capturing_) {
    // What released graphs held may serve.
    if (!retired_.empty()) purge_graphs();
    return new Buffer{allocator_->allocate(bytes), bytes, 0, nullptr, 0};
  }
  return new Buffer{capturing_->pool->take(bytes), bytes, 0, capturing_->pool, capture_};
}

int64_t Device::bytes_of(const TensorView& view) const {
  if (!view.packed) return view.bytes();
  return view.rank == 3 ? view[0] * queue_->backend().packed_bytes(view.weight(0))
                        : queue_->backend().packed_bytes(view);
}

Handle Device::allocate(DType dtype, const std::vector<int64_t>& shape) {
  if (capturing_) throw Error("E_CAPTURE", "tensors cannot be created inside capture; create them before it");
  TensorView view;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int64_t numel = 1;
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i] < 0 || (shape[i] > 0 && numel > (int64_t{1} << 46) / shape[i]))
      throw Error("E_SHAPE", "a shape must have extents of at least 0 and fewer than 2^46 elements");
    view.shape[i] = shape[i];
    numel *= shape[i];
  }
  Buffer* buffer = new_buffer(bytes_of(view));
  view.data = buffer->block->data;
  return insert(view, buffer);
}

int64_t Device::packed_offset(const TensorView& source, const TensorView& view, int64_t offset) const {
  const TensorView one = source.rank == 3 ? source.weight(0) : source;
  const auto last = [&](int axis) { return view[view.rank - axis]; };
  const bool whole = (view.rank == 2 || view.rank == 3) && last(2) == one[0] && last(1) == one[1];
  if (!whole || (one.numel() > 0 && offset % one.numel() != 0))
    throw Error("E_SHAPE",
                "a view of a packed weight is that weight, or whole ones of several: its last two extents "
                "are theirs, and it begins where one does");
  return one.numel() > 0 ? offset / one.numel() * queue_->backend().packed_bytes(one) : 0;
}

Handle Device::view(Handle handle, int64_t offset, const std::vector<int64_t>& shape) {
  const Slot source = slot(handle);
  TensorView view = source.view;
  view.rank = static_cast<int>(shape.size());
  for (size_t i = 0; i < shape.size(); i++) view.shape[i] = shape[i];
  const bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; });
  if (negative || offset < 0 || offset + view.numel() > source.view.numel())
    throw Error("E_SHAPE", format("a view of %lld elements at %lld does not fit into %lld",
                                  static_cast<long long>(view.numel()), static_cast<long long>(offset),
                                  static_cast<long long>(source.view.numel())));
  view.data = static_cast<char*>(view.data) +
              (view.packed ? packed_offset(source.view, view, offset) : offset * size_of(view.dtype));
  return insert(view, source.buffer);
}

void Device::drop(Buffer* buffer) {
  if (--buffer->references > 0) return;
  if (!buffer->pool) {
    allocator_->free(buffer->block);
  } else if (capturing_ && buffer->capture == capture_) {
    buffer->pool->give_back(buffer->block);
  }
  delete buffer;  // what a graph made stays in its pool
}

void Device::release(Handle handle) {
  Slot& s = slot(handle);
  Buffer* buffer = s.buffer;
  s.buffer = nullptr;
  s.generation++;
  free_slots_.push_back(handle & kSlotMask);
  live_tensors_--;
  drop(buffer);
}

int64_t Device::enqueue(int op, Handle* handles, const double* scalars) {
  if (op < 0 || op >= static_cast<int>(ops().size())) throw Error("E_RANGE", "no such op");
  // Filled where it will lie: inside the queue, or at the end of the graph being captured.
  Record& record = capturing_ ? capturing_->records.emplace_back() : queue_->reserve();
  try {
    fill(record, op, handles, scalars);
  } catch (...) {
    if (capturing_) capturing_->records.pop_back();
    throw;
  }
  record.number = ++number_;
  if (!capturing_) queue_->commit();
  return number_;
}

void Device::fill(Record& record, int op, Handle* handles, const double* scalars) {
  const Signature& signature = ops()[static_cast<size_t>(op)];
  if (capturing_ && !signature.scalars.empty() && signature.scalars.front().name == "communicator")
    throw Error("E_CAPTURE",
                signature.name + " cannot be captured: its replays would not meet those of other processes");
  record.kind = Record::Kind::op;
  record.op = op;
  record.scope = scope_;
  std::array<Given, kMaxTensors> given;
  const int n = signature.tensors();
  for (int i = 0; i < n; i++) {
    const auto at = static_cast<size_t>(i);
    given[at] = handles[i] == kAbsent     ? Given::absent
                : handles[i] == kAllocate ? Given::allocate
                                          : Given::tensor;
    record.args.tensor[at] = given[at] == Given::tensor ? slot(handles[i]).view : TensorView{};
  }
  for (size_t i = 0; i < signature.scalars.size(); i++) record.args.scalar[i] = scalars[i];
  check(signature, record.args, given.data());
  if (capturing_) {
    for (int i = 0; i < n; i++) {
      if (given[static_cast<size_t>(i)] == Given::tensor) keep_for_replay(slot(handles[i]).buffer);
    }
  }
  if (!queue_->backend().has(op))
    throw Error("E_UNSUPPORTED", signature.name + " has no kernel on " + queue_->backend().info().name);
  for (int i = static_cast<int>(signature.inputs.size()); i < n; i++) {
    const auto at = static_cast<size_t>(i);
    if (given[at] != Given::allocate) continue;
    TensorView& view = record.args.tensor[at];
    try {
      Buffer* buffer = new_buffer(bytes_of(view));
      view.data = buffer->block->data;
      handles[i] = insert(view, buffer);
    } catch (...) {
      while (--i >= static_cast<int>(signature.inputs.size())) {
        if (given[static_cast<size_t>(i)] == Given::allocate) release(handles[i]);
      }
      throw;
    }
  }
}

/// The graph's replays read and write the buffer, also after the tensor is disposed.
void Device::keep_for_replay(Buffer* buffer) {
  if (buffer->capture == capture_) return;
  if (buffer->pool == capturing_->pool)
    throw Error("E_CAPTURE",
                "what another graph of the same pool made cannot be captured: this one may overwrite it",
                "copy it before the capture");
  if (capturing_->inputs.insert(buffer).second) buffer->references++;
}

void Device::upload(Handle target, const void* bytes, int64_t size) {
  if (capturing_) throw Error("E_CAPTURE", "uploads cannot be captured; write before replay");
  const TensorView& view = tensor(target);
  if (view.format != Format::none)
    throw Error("E_DTYPE", "a quantised weight cannot be written; pack_quantized makes one");
  if (size != view.bytes())
    throw Error("E_SHAPE", format("upload: expected %lld bytes, got %lld",
                                  static_cast<long long>(view.bytes()), static_cast<long long>(size)));
  Record& record = queue_->reserve();
  record.kind = Record::Kind::upload;
  record.scope = scope_;
  record.number = ++number_;
  record.target = view;
  record.bytes.reset(new char[static_cast<size_t>(size)]);
  // An empty array may have no address, which memcpy must not be given.
  if (size > 0) std::memcpy(record.bytes.get(), bytes, static_cast<size_t>(size));
  queue_->commit();
}

void Device::download(Handle source, void* destination, std::unique_ptr<Completion> completion) {
  if (capturing_) throw Error("E_CAPTURE", "reads cannot be captured; read after replay");
  Record& record = queue_->reserve();
  record.kind = Record::Kind::download;
  record.scope = scope_;
  record.number = ++number_;
  record.target = tensor(source);
  if (record.target.packed) throw Error("E_DTYPE", "a packed weight cannot be read; unpack it first");
  record.destination = destination;
  record.completion = std::move(completion);
  queue_->commit();
}

void Device::signal(std::unique_ptr<Completion> completion) {
  Record& record = queue_->reserve();
  record.kind = Record::Kind::signal;
  record.completion = std::move(completion);
  queue_->commit();
}

int64_t Device::new_pool() {
  pools_[next_pool_] = std::make_shared<GraphPool>(*allocator_);
  return next_pool_++;
}

void Device::release_pool(int64_t pool) {
  pools_.erase(pool);
  purge_graphs();
}

void Device::begin_capture(int64_t pool) {
  if (capturing_) throw Error("E_CAPTURE", "captures do not nest");
  const auto shared = pools_.find(pool);
  if (pool != 0 && shared == pools_.end())
    throw Error("E_HANDLE", "a capture was begun in a pool that was disposed");
  capturing_ = std::make_shared<Graph>();
  capturing_->pool = pool != 0 ? shared->second : std::make_shared<GraphPool>(*allocator_);
  capture_++;
}

int64_t Device::end_capture(bool keep) {
  if (!capturing_) throw Error("E_CAPTURE", "no capture is open");
  std::shared_ptr<Graph> graph = std::move(capturing_);
  capturing_.reset();
  graph->pool->restart();
  if (!keep) {
    retired_.push_back(std::move(graph));
    purge_graphs();
    return 0;
  }
  graphs_[next_graph_] = std::move(graph);
  return next_graph_++;
}

void Device::replay(int64_t graph) {
  if (capturing_) throw Error("E_CAPTURE", "a replay cannot be captured");
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) throw Error("E_HANDLE", "a graph was replayed after it was disposed");
  Record& record = queue_->reserve();
  record.kind = Record::Kind::replay;
  record.scope = scope_;
  record.number = ++number_;
  record.graph = found->second;
  queue_->commit();
}

void Device::release_graph(int64_t graph) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return;
  retired_.push_back(std::move(found->second));
  graphs_.erase(found);
  purge_graphs();
}

/// Lets go of released graphs that no queued replay holds any more, and so of their pools where no other graph and no tensor
/// does. On the host thread, like every free.
void Device::purge_graphs() {
  for (size_t i = 0; i < retired_.size();) {
    if (retired_[i].use_count() > 1) {
      i++;
      continue;
    }
    const std::shared_ptr<Graph> graph = std::move(retired_[i]);
    retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
    for (Buffer* input : graph->inputs) drop(input);
  }
}

}  // namespace steptrain
