// Which kernel serves an op where there are two: the one that an H100 has shown right, or its successor, which
// waits for hardware to show it right and faster. When it has, the older kernel and its row here are deleted.
#pragma once

#include <cstdint>

namespace steptrain::cuda {

enum class Successor : uint8_t {
  few_rows,  // 17 to 256 rows of x·Wᵀ by wgmma with split depth
  lora,      // the LoRA pair as rounds of the product's own ring; both skinny products of a read in one
  tiles,     // products of few columns by tiles that fill the last wave
  attention_forward,   // persistent blocks, the longest first; sequences of less than 8,192 tokens
  attention_backward,  // five products, scores before the wait; heads of 64
  kCount,
};

/// The successors that a device takes: those whose row says so, some by the shape of the work; all, none or the
/// named ones with STEPTRAIN_KERNELS=new, verified or a list such as few_rows,tiles, which is read when a device
/// is opened.
class Choice {
 public:
  /// Throws E_RANGE for a name that the table does not have.
  static Choice of_environment();
  /// `fits`: whether an H100 was faster with it on this shape, which decides where nothing else was asked for.
  bool takes(Successor which, bool fits = true) const {
    return (taken_ >> static_cast<unsigned>(which) & 1u) && (fits || forced_);
  }

 private:
  uint32_t taken_ = 0;
  bool forced_ = false;
};

}  // namespace steptrain::cuda
