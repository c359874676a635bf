// x·Wᵀ and dyᵀ·x by cuda/gemm/sm90_tiles.cuh.
#include "cuda/gemm/sm90_tiles.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {
namespace hopper {

void multiply_forward(Stream& stream, const Product& p) {
  launch_fitting<Layout::forward, false>(stream, p);
}
void multiply_weight(Stream& stream, const Product& p) {
  launch_fitting<Layout::weight, false>(stream, p);
}

}  // namespace hopper
}  // namespace steptrain::cuda
