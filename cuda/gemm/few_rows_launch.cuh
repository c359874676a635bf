// Chooses the kernel of a product of few rows (cuda/gemm/few_rows.cuh). All give the same bits.
#pragma once

#include "cuda/gemm/few_rows_stream.cuh"
#include "cuda/gemm/few_rows_tiles.cuh"

namespace steptrain::cuda {
namespace few {

template <typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  if (p.rows <= kGroup) return launch_stream<1>(stream, p, epilogue);
  if (p.rows <= 2 * kGroup) return launch_stream<2>(stream, p, epilogue);
  if (p.rows <= 32) return launch_tiles<Tile<64, 32>>(stream, p, epilogue);
  if (p.rows > 64 && tiles_of<Tile<128, 128>>(p, epilogue) >= stream.hardware.multiprocessors)
    return launch_tiles<Tile<128, 128>>(stream, p, epilogue);
  launch_tiles<Tile<64, 64>>(stream, p, epilogue);
}

/// The same of rows that can_norm() lets the kernel norm.
template <typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue, const Norm& norm) {
  if (p.rows <= kGroup) return launch_stream<1>(stream, p, epilogue, norm);
  launch_stream<2>(stream, p, epilogue, norm);
}

}  // namespace few
}  // namespace steptrain::cuda
