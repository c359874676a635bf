// The bf16 product (cuda/gemm/product.h) on Hopper; x·Wᵀ and dyᵀ·x by cuda/gemm/sm90_tiles.cuh.
#include "cuda/gemm/sm90_tiles.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {

void multiply_sm90(Stream& stream, Layout layout, const Product& product) {
  if (layout == Layout::forward) return hopper::launch_fitting<Layout::forward, false>(stream, product);
  if (layout == Layout::weight) return hopper::launch_fitting<Layout::weight, false>(stream, product);
  hopper::multiply_input(stream, product);
}

}  // namespace steptrain::cuda
