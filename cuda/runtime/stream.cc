#include "cuda/runtime/stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/ops.h"
#include "cuda/runtime/capture_lock.h"
#include "cuda/runtime/check.h"

namespace steptrain::cuda {

Scratch::Scratch(Kind kind, void* block, int64_t bytes)
    : kind_(kind), block_(static_cast<char*>(block)), block_bytes_(bytes) {}

Scratch Scratch::measuring() {
  // Any aligned address that is not null will do.
  return Scratch(Kind::measuring, reinterpret_cast<void*>(uintptr_t{4096}), INT64_MAX);
}

Scratch Scratch::within(void* block, int64_t bytes) {
  return Scratch(Kind::fixed, block, bytes);
}

Scratch::~Scratch() {
  if (kind_ != Kind::owning) return;
  for (const Span& block : outgrown_) cudaFreeAsync(const_cast<void*>(block.data), stream_);
  if (block_) cudaFreeAsync(block_, stream_);
}

void* Scratch::take_bytes(int64_t bytes) {
  if (bytes > block_bytes_ - used_) grow(bytes);
  void* data = block_ + used_;
  used_ += bytes;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  return data;
}

void Scratch::grow(int64_t bytes) {
  if (kind_ != Kind::owning)
    throw Error("E_MEMORY", "a captured op asks for more workspace than when it was measured");
  if (block_) outgrown_.push_back({std::exchange(block_, nullptr), block_bytes_});
  const int64_t wanted = std::max(bytes, 2 * block_bytes_);
  block_bytes_ = used_ = 0;
  void* block = nullptr;
  check(cudaMallocAsync(&block, static_cast<size_t>(wanted), stream_), "allocating workspace");
  block_ = static_cast<char*>(block);
  block_bytes_ = wanted;
}

void Scratch::reset() {
  if (!outgrown_.empty()) {
    // Freed in stream order, after the op's kernels. One block large enough for all of it replaces them.
    for (const Span& block : outgrown_)
      check(cudaFreeAsync(const_cast<void*>(block.data), stream_), "freeing workspace");
    outgrown_.clear();
    if (block_bytes_ < held_) {
      check(cudaFreeAsync(std::exchange(block_, nullptr), stream_), "freeing workspace");
      block_bytes_ = 0;
      grow(held_);
    }
  }
  used_ = held_ = 0;
}

bool Scratch::holds(const Span& span) const {
  return overlap(span, {block_, block_ ? block_bytes_ : 0}) ||
         std::any_of(outgrown_.begin(), outgrown_.end(),
                     [&](const Span& block) { return overlap(span, block); });
}

void Scratch::rewind(const Mark& mark) {
  if (block_ != mark.block) return;  // it has grown since; reset() makes one block for all
  used_ = mark.used;
  held_ = mark.held;
}

void Predecessor::follow(int op, const Args& args, bool launched) {
  if (launched) written.clear();
  const Signature& signature = ops()[static_cast<size_t>(op)];
  const size_t inputs = signature.inputs.size();
  for (size_t i = 0; i < inputs + signature.outputs.size(); i++) {
    const TensorView& tensor = args.tensor[i];
    if (tensor && (i >= inputs || signature.inputs[i].inout))
      written.push_back({tensor.data, tensor.bytes()});
  }
}

bool Predecessor::writes(const Span& span) const {
  return std::any_of(written.begin(), written.end(), [&](const Span& own) { return overlap(own, span); });
}

bool Stream::may_start_early(std::initializer_list<Span> reads) const {
  // What lies in workspace a launch of the same op has put there.
  const auto waits = [&](const Span& span) {
    return span.data && (predecessor->writes(span) || scratch.holds(span));
  };
  return hardware.early_start && predecessor && predecessor->is_kernel &&
         std::none_of(reads.begin(), reads.end(), waits);
}

const Prepared& Stream::prepare(const void* kernel, int64_t blocks, int64_t shared) {
  constexpr int64_t kWithoutAsking = 48 << 10;  // static and dynamic shared memory together
  constexpr int64_t kMaxBlocks = 0x7fffffff;
  if (blocks > kMaxBlocks)
    throw Error("E_SHAPE", format("a kernel would need %lld blocks, more than CUDA's 2147483647",
                                  static_cast<long long>(blocks)));
  const auto found = prepared.find(kernel);
  if (found != prepared.end() && found->second.shared >= shared) return found->second;
  // Loads the kernel now: loading may wait for the GPU, which is forbidden during a capture.
  const std::lock_guard lock(capture_lock());
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel");
  if (shared + static_cast<int64_t>(attributes.sharedSizeBytes) > kWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          "asking for shared memory");
  constexpr int kWaits = 90;
  return prepared[kernel] = {shared, attributes.ptxVersion >= kWaits};
}

void Stream::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  launches++;
  if (measuring) return;
  if (predecessor) predecessor->is_kernel = false;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
        "copying on the GPU");
}

void Stream::zero(void* data, int64_t bytes) {
  if (bytes == 0) return;
  launches++;
  if (measuring) return;
  if (predecessor) predecessor->is_kernel = false;
  check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream), "clearing memory on the GPU");
}

}  // namespace steptrain::cuda
