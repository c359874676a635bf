// Chooses the kernel of a product of few rows (cuda/gemm/few_rows.cuh). All give the same bits.
#pragma once

#include "cuda/gemm/few_rows_stream.cuh"
#include "cuda/gemm/few_rows_tiles.cuh"

namespace steptrain::cuda {
struct StoreSwiglu;

#ifdef STEPTRAIN_SM90
/// The products of 17 to few::kMaxRows rows on sm_90 (cuda/gemm/sm90_few_rows.cuh), of factors that TMA can read.
void multiply_few_rows_sm90(Stream& stream, const Product& product, const Store& epilogue);
void multiply_few_rows_sm90(Stream& stream, const Product& product, const StoreSwiglu& epilogue);
void multiply_few_rows_sm90(Stream& stream, const Product& product, const few::StoreEach& epilogue);
#endif

namespace few {

constexpr int64_t kMostPortable = 16;  // rows, where wgmma takes more

/// Whether wgmma takes a launch, by its rows and by what TMA can read.
template <typename Epilogue>
bool takes_wgmma(const Stream& stream, const Product& p, const Epilogue& epilogue) {
#ifdef STEPTRAIN_SM90
  const auto readable = [](const Product& of) {
    const bool pair = of.rank == 0 || (readable_async(of.lora_a) && readable_async(of.lora_b));
    return pair && readable_async(of.b) && of.dropped == Dropped::nothing;
  };
  if (stream.hardware.compute_capability != 90) return false;
  if (p.rows <= kMostPortable || p.depth == 0 || !readable_async(p.a)) return false;
  if constexpr (kSeveral<Epilogue>) {
    return readable(epilogue.of[0]) && readable(epilogue.of[1]) && readable(epilogue.of[2]);
  } else {
    return readable(p) && readable(twin_of(epilogue, p));
  }
#else
  (void)stream, (void)p, (void)epilogue;
  return false;
#endif
}

template <typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
#ifdef STEPTRAIN_SM90
  if (takes_wgmma(stream, p, epilogue)) return multiply_few_rows_sm90(stream, p, epilogue);
#endif
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
