// The head's products of bf16 rows (cuda/head/epilogues.cuh).
#include "cuda/gemm/product_bf16.cuh"
#include "cuda/head/epilogues.cuh"

namespace steptrain::cuda {
namespace {

using portable::Large;
using portable::Small;

/// The parts into which a tile's warps divide a row.
template <typename Tile>
constexpr int64_t kParts = Tile::kColumns / Tile::kWarpColumns;

}  // namespace

int64_t fold_parts(Loading loading) {
  return loading == Loading::tma ? 1 : loading == Loading::cp_async ? kParts<Large> : kParts<Small>;
}

template <typename Epilogue>
void head_product_bf16(Stream& stream, Loading loading, const Product& p, const Epilogue& epilogue) {
  if (loading == Loading::registers)
    return portable::launch<Layout::forward, Small, false>(stream, p, epilogue);
#ifdef STEPTRAIN_SM90
  if (loading == Loading::tma) return head_product_sm90(stream, p, epilogue);
#endif
  // A fold has the same tile for any number of rows, so that a row's bits do not depend on it.
  constexpr bool kFold = Epilogue::kColumns > 0;
  if constexpr (!kFold) {
    if (tile_count(p, Large::kRows, Large::kColumns) < stream.hardware.multiprocessors)
      return portable::launch<Layout::forward, Small, true>(stream, p, epilogue);
  }
  portable::launch<Layout::forward, Large, true>(stream, p, epilogue);
}

template void head_product_bf16(Stream&, Loading, const Product&, const Fold&);
template void head_product_bf16(Stream&, Loading, const Product&, const Map<bf16, Probability>&);
template void head_product_bf16(Stream&, Loading, const Product&, const Map<bf16, LogitGradient>&);

}  // namespace steptrain::cuda
