// The head's products of f32 rows (cuda/head/epilogues.cuh).
#include "cuda/gemm/product_f32.cuh"
#include "cuda/head/epilogues.cuh"

namespace steptrain::cuda {

template <typename Epilogue>
void head_product_f32(Stream& stream, const Product& p, const Epilogue& epilogue) {
  ordinary::launch<Layout::forward>(stream, p, epilogue);
}

template void head_product_f32(Stream&, const Product&, const Fold&);
template void head_product_f32(Stream&, const Product&, const Map<float, Probability>&);
template void head_product_f32(Stream&, const Product&, const Map<float, LogitGradient>&);

}  // namespace steptrain::cuda
