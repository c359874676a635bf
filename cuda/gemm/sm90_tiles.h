// The bf16 product on Hopper, by cuda/gemm/sm90_tiles.cuh, in files of their own, since each takes long to compile.
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {
namespace hopper {

/// dy·W of factors as multiply_sm90 takes them, with or without a mask of the LoRA pair.
void multiply_input(Stream& stream, const Product& p);
/// A product without a mask whose last tiles blocks share (cuda/gemm/stream_k.cuh), where that takes fewer clocks than
/// `clocks`; else launches nothing and returns false.
bool multiply_stream_k(Stream& stream, Layout layout, const Product& p, int64_t clocks);

}  // namespace hopper
}  // namespace steptrain::cuda
