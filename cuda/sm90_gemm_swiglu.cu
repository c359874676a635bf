// The two halves of linear_swiglu (cuda/gemm_swiglu.cuh) on Hopper.
#include "cuda/gemm_swiglu.cuh"
#include "cuda/sm90_gemm.cuh"

namespace steptrain::cuda {

void multiply_swiglu_sm90(Stream& stream, const Product& p, const StoreSwiglu& epilogue) {
  hopper::launch<Layout::forward, 256>(stream, p, epilogue);
}

}  // namespace steptrain::cuda
