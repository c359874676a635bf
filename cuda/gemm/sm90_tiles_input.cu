// dy·W by cuda/gemm/sm90_tiles.cuh, with and without the mask of a LoRA pair.
#include "cuda/gemm/sm90_tiles.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {
namespace hopper {

void multiply_input(Stream& stream, const Product& p) {
  launch_fitting<Layout::input, false>(stream, p);
}
void multiply_input_masked(Stream& stream, const Product& p) {
  launch_fitting<Layout::input, true>(stream, p);
}

}  // namespace hopper
}  // namespace steptrain::cuda
