// The bf16 product on Hopper by cuda/gemm/sm90_tiles.cuh.
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {
namespace hopper {

/// Of factors as multiply_sm90 takes them, with a LoRA pair whose scale is 1 and that nothing masks.
void multiply_forward(Stream& stream, const Product& p);
void multiply_input(Stream& stream, const Product& p);
void multiply_weight(Stream& stream, const Product& p);
/// With a scale or a mask of the LoRA pair.
void multiply_input_masked(Stream& stream, const Product& p);

}  // namespace hopper
}  // namespace steptrain::cuda
