// What a CUDA kernel's host function gets besides its arguments: the stream, workspace, and the way to
// launch. The host function runs on the queue's thread and returns before the kernel has run.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "core/args.h"
#include "cuda/runtime/beside.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/choice.h"
#include "cuda/runtime/faults.h"

namespace steptrain::cuda {

/// Memory of the device.
struct Span {
  const void* data;
  int64_t bytes;
};
inline bool overlap(const Span& a, const Span& b) {
  const auto begin = [](const Span& of) { return static_cast<const char*>(of.data); };
  return begin(a) < begin(b) + b.bytes && begin(b) < begin(a) + a.bytes;
}

/// Workspace of the running op in device memory: a bump allocator that is reset when the op's kernels are
/// queued (those of the next op run after them) and keeps its memory. Grows and shrinks in stream order.
class Scratch {
 public:
  explicit Scratch(cudaStream_t stream) : stream_(stream) {}
  /// Hands out addresses that must not be accessed, to measure what a list of ops needs.
  static Scratch measuring();
  /// Hands out parts of `block`, which its owner frees.
  static Scratch within(void* block, int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// 256-byte aligned, uninitialised.
  template <typename T>
  T* take(int64_t count) {
    return static_cast<T*>(take_bytes((count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256));
  }
  void reset();
  /// Lets what was taken since `mark` be handed out again:
  /// kernels that use it run before those that get it next.
  struct Mark {
    char* block;
    int64_t used, held;
  };
  Mark mark() const { return {block_, used_, held_}; }
  void rewind(const Mark& mark);
  /// Whether any of it is the op's workspace.
  bool holds(const Span& span) const;
  int64_t peak() const { return peak_; }

 private:
  enum class Kind : uint8_t { owning, measuring, fixed };
  Scratch(Kind kind, void* block, int64_t bytes);
  void* take_bytes(int64_t bytes);
  void grow(int64_t bytes);

  Kind kind_ = Kind::owning;
  cudaStream_t stream_ = nullptr;
  char* block_ = nullptr;
  std::vector<Span> outgrown_;  // still in use by this op
  int64_t block_bytes_ = 0;
  int64_t used_ = 0;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

struct Prepared {
  int64_t shared;  // the most dynamic shared memory that it has been allowed
  bool waits;      // compiled for sm_90 or newer, so that take_turn() waits
};
/// Loaded kernels.
using PreparedKernels = std::unordered_map<const void*, Prepared>;

/// The properties of the GPU that launches depend on.
struct Hardware {
  int multiprocessors = 1;
  int compute_capability = 80;   // 10 · major + minor
  int64_t shared_per_block = 0;  // bytes of dynamic shared memory that a block may ask for
  bool early_start = true;       // false with STEPTRAIN_EARLY_START=0 and before CUDA 12.3
  Choice choice{};
};

constexpr int kTickets = 4096;

/// What was queued last, which a kernel that starts early may meet.
struct Predecessor {
  bool is_kernel = false;
  std::vector<Span> written;  // by its op

  /// Called after each op. An op without a launch leaves the kernel before it in place.
  void follow(int op, const Args& args, bool launched);
  bool writes(const Span& span) const;
};

struct Stream {
  cudaStream_t stream;
  Scratch& scratch;
  PreparedKernels& prepared;
  const Hardware& hardware;
  /// kTickets counters in device memory, 0 between kernels: see last_block in cuda/reduce.cuh.
  uint32_t* ticket;
  /// A dry run: kernels are loaded and counted, not launched.
  bool measuring = false;
  Predecessor* predecessor = nullptr;
  /// Null in a capture.
  Beside* beside = nullptr;
  FaultReporter faults{};
  int64_t launches = 0;

  /// Queues `kernel` with `blocks` blocks of `threads` and `shared` bytes of dynamic shared memory. With 0
  /// blocks nothing is launched.
  template <typename... Params, typename... Given>
  void launch(void (*kernel)(Params...), int64_t blocks, int threads, int64_t shared, Given... given) {
    launch(false, kernel, blocks, threads, shared, given...);
  }
  /// The same of a kernel that calls take_turn (cuda/instructions.cuh) and may start before the one in front
  /// of it has ended: programmatic dependent launch, where it was compiled for sm_90 or newer. `reads` is what it reads before it waits.
  template <typename... Params, typename... Given>
  void launch_early(std::initializer_list<Span> reads, void (*kernel)(Params...), int64_t blocks, int threads,
                    int64_t shared, Given... given) {
    launch(may_start_early(reads), kernel, blocks, threads, shared, given...);
  }
  /// Queues a copy within the device's memory; counts as a launch.
  void copy(void* to, const void* from, int64_t bytes);
  /// Queues the writing of zeros; counts as a launch.
  void zero(void* data, int64_t bytes);

 private:
  template <typename... Params, typename... Given>
  void launch(bool early, void (*kernel)(Params...), int64_t blocks, int threads, int64_t shared,
              Given... given) {
    if (blocks == 0) return;
    early = prepare(reinterpret_cast<const void*>(kernel), blocks, shared).waits && early;
    launches++;
    if (measuring) return;
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = early ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, given...), "launching a kernel");
    if (predecessor) predecessor->is_kernel = true;
  }
  bool may_start_early(std::initializer_list<Span> reads) const;
  const Prepared& prepare(const void* kernel, int64_t blocks, int64_t shared);
};

using Kernel = void (*)(Stream&, const Args&);

}  // namespace steptrain::cuda
