// The head's products of f32 rows (cuda/head.cuh).
#include "cuda/gemm_f32.cuh"
#include "cuda/head.cuh"

namespace steptrain::cuda {

template <typename Epilogue>
void head_product_f32(Stream& stream, const Product& p, const Epilogue& epilogue) {
  ordinary::launch<Layout::forward>(stream, p, epilogue);
}

template void head_product_f32(Stream&, const Product&, const Fold&);
template void head_product_f32(Stream&, const Product&, const Map<float, Probability>&);
template void head_product_f32(Stream&, const Product&, const Map<float, LogitGradient>&);

}  // namespace steptrain::cuda
