// The head's products (cuda/head/epilogues.cuh) on Hopper.
#include "cuda/gemm/sm90_product.cuh"
#include "cuda/head/epilogues.cuh"

namespace steptrain::cuda {

template <typename Epilogue>
void head_product_sm90(Stream& stream, const Product& p, const Epilogue& epilogue) {
  // A fold's tile is the same for any number of rows, and so are a row's bits.
  if constexpr (Epilogue::kColumns > 0) {
    hopper::launch<Layout::forward, 256>(stream, p, epilogue);
  } else {
    hopper::launch<Layout::forward>(stream, p, epilogue);
  }
}

template void head_product_sm90(Stream&, const Product&, const Fold&);
template void head_product_sm90(Stream&, const Product&, const Map<bf16, Probability>&);
template void head_product_sm90(Stream&, const Product&, const Map<bf16, LogitGradient>&);

}  // namespace steptrain::cuda
