// dy·W by cuda/gemm/sm90_tiles.cuh.
#include "cuda/gemm/sm90_tiles.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {
namespace hopper {

void multiply_input(Stream& stream, const Product& p) {
  if (p.rank > 0 && p.dropped == Dropped::lora) return launch_fitting<Layout::input, true>(stream, p);
  launch_fitting<Layout::input, false>(stream, p);
}

}  // namespace hopper
}  // namespace steptrain::cuda
