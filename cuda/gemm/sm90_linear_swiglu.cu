// The two halves of linear_swiglu (cuda/gemm/linear_swiglu.cuh) on Hopper.
#include "cuda/gemm/linear_swiglu.cuh"
#include "cuda/gemm/sm90_tiles.cuh"

namespace steptrain::cuda {

void multiply_swiglu_sm90(Stream& stream, const Product& p, const StoreSwiglu& epilogue) {
  hopper::launch_tiles<Layout::forward, 256, false>(stream, p, epilogue);
}

}  // namespace steptrain::cuda
