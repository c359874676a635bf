// The bf16 product (cuda/gemm/product.h) on Hopper.
#include "cuda/gemm/sm90_product.cuh"

namespace steptrain::cuda {

void multiply_sm90(Stream& stream, Layout layout, const Product& product) {
  if (layout == Layout::forward) return hopper::launch<Layout::forward>(stream, product, Store{});
  if (layout == Layout::input) return hopper::launch<Layout::input>(stream, product, Store{});
  hopper::launch<Layout::weight>(stream, product, Store{});
}

}  // namespace steptrain::cuda
