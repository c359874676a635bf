// The f32 product (cuda/gemm/product.h).
#include "cuda/gemm/product_f32.cuh"

namespace steptrain::cuda {

void multiply_f32(Stream& stream, Layout layout, const Product& product) {
  if (layout == Layout::forward) return ordinary::launch<Layout::forward>(stream, product, Store{});
  if (layout == Layout::input) return ordinary::launch<Layout::input>(stream, product, Store{});
  ordinary::launch<Layout::weight>(stream, product, Store{});
}

}  // namespace steptrain::cuda
