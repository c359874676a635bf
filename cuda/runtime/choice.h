// Which kernel serves an op where there are two: the one that an H100 has shown right, or its successor, which
// waits for hardware to show it right and faster. When it has, the older kernel and its row here are deleted.
#pragma once

#include <cstdint>

namespace steptrain::cuda {

enum class Successor : uint8_t {
  attention_backward,  // heads of 128 on Hopper: five products in sm90_backward_128.cu, not seven in two kernels
  lora_gradients,  // v and db in one pass over dy in skinny_once.cu, not in skinny_slices.cu and skinny_tokens.cu
  stream_k,  // products on Hopper whose last tiles blocks share in stream_k.cuh, not waves of whole tiles
  kCount,
};

/// The successors that a device takes: none, all with STEPTRAIN_KERNELS=new, or those that it names in a list; it
/// is read when a device is opened.
class Choice {
 public:
  /// Throws E_RANGE for a name that the table does not have.
  static Choice of_environment();
  bool takes(Successor which) const { return taken_ >> static_cast<unsigned>(which) & 1u; }

 private:
  uint32_t taken_ = 0;
};

}  // namespace steptrain::cuda
