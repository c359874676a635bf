// The two halves of linear_swiglu (cuda/gemm/linear_swiglu.cuh) on Hopper.
#include "cuda/gemm/linear_swiglu.cuh"
#include "cuda/gemm/sm90_product.cuh"

namespace steptrain::cuda {

void multiply_swiglu_sm90(Stream& stream, const Product& p, const StoreSwiglu& epilogue) {
  hopper::launch<Layout::forward, 256>(stream, p, epilogue);
}

}  // namespace steptrain::cuda
