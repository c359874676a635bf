// Plain products of few rows (cuda/gemm/few_rows.cuh).
#include "cuda/gemm/few_rows_launch.cuh"

namespace steptrain::cuda {

void multiply_few_rows(Stream& stream, const Product& product) {
  few::launch(stream, product, Store{});
}

}  // namespace steptrain::cuda
