// Products of few rows on Hopper (cuda/gemm/sm90_few_rows.cuh).
#include "cuda/gemm/sm90_few_rows.cuh"

#include "cuda/gemm/few_rows_launch.cuh"
#include "cuda/gemm/linear_swiglu.cuh"

namespace steptrain::cuda {

void multiply_few_rows_sm90(Stream& stream, const Product& product, const Store& epilogue) {
  hopper::rows::launch(stream, product, epilogue);
}
void multiply_few_rows_sm90(Stream& stream, const Product& product, const StoreSwiglu& epilogue) {
  hopper::rows::launch(stream, product, epilogue);
}
void multiply_few_rows_sm90(Stream& stream, const Product& product, const few::StoreEach& epilogue) {
  hopper::rows::launch(stream, product, epilogue);
}

}  // namespace steptrain::cuda
