// The two halves of linear_swiglu (cuda/gemm/linear_swiglu.cuh) on Hopper.
#include "cuda/gemm/linear_swiglu.cuh"
#include "cuda/gemm/sm90_product.cuh"
#include "cuda/gemm/sm90_tiles.cuh"

namespace steptrain::cuda {

void multiply_swiglu_sm90(Stream& stream, const Product& p, const StoreSwiglu& epilogue) {
  const Product& twin = epilogue.twin;
  const bool pairs = p.rank > 0 || twin.rank > 0;
  const bool folded = (p.rank == 0 || p.lora_scale == 1) && (twin.rank == 0 || twin.lora_scale == 1);
  const Choice& choice = stream.hardware.choice;
  if (folded && (choice.takes(Successor::tiles) || (choice.takes(Successor::lora) && pairs)))
    return hopper::launch_tiles<Layout::forward, 256, false>(stream, p, epilogue);
  hopper::launch<Layout::forward, 256>(stream, p, epilogue);
}

}  // namespace steptrain::cuda
