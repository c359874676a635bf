// The epilogue of two products of the same rows, p and `twin`, that share tiles: half of a tile's columns are
// p's, half are twin's, so that a thread has both sums of an element: pair j belongs to p, pair j + kPairs/2
// to twin. Each sum is rounded as linear would round it before the two are combined.
#pragma once

#include "cuda/activation.cuh"
#include "cuda/gemm/parts.cuh"

namespace steptrain::cuda {

struct StoreSwiglu {
  static constexpr int64_t kColumns = 0;
  static constexpr bool kLora = true;
  static constexpr bool kTwin = true;
  /// The second product: its b and LoRA pair are its own, the rest is as in p. The outputs of p and twin are gate
  /// and up in bf16; they may be absent.
  Product twin;
  bf16* y = nullptr;

  template <typename Sums>
  struct Item {
    const Product& p;
    bf16 *gate, *up, *y;
    bool paired;
    __device__ Item(const StoreSwiglu& epilogue, const Product& p)
        : p(p),
          gate(static_cast<bf16*>(p.out)),
          up(static_cast<bf16*>(epilogue.twin.out)),
          y(epilogue.y),
          paired(p.columns % 2 == 0 && ((reinterpret_cast<uintptr_t>(gate) | reinterpret_cast<uintptr_t>(up) |
                                         reinterpret_cast<uintptr_t>(y)) %
                                        4) == 0) {}

    __device__ void add(Sums& sums, bool) {
      constexpr int kHalf = Sums::kPairs / 2;
#pragma unroll
      for (int i = 0; i < Sums::kRows; i++)
#pragma unroll
        for (int pair = 0; pair < kHalf; pair++) {
          const int64_t row = sums.row(i), column = sums.column(pair);
          if (row >= p.rows || column >= p.columns) continue;
          const int64_t at = row * p.columns + column;
          float g[2], u[2], product[2];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            g[e] = stored<bf16>(sums.at(i, pair, e));
            u[e] = stored<bf16>(sums.at(i, pair + kHalf, e));
            product[e] = swiglu_value(g[e], u[e]);
          }
          const int count = column + 1 < p.columns ? 2 : 1;
          write(y, at, count, product);
          if (gate) write(gate, at, count, g);
          if (up) write(up, at, count, u);
        }
    }

    __device__ void write(bf16* to, int64_t at, int count, const float (&v)[2]) const {
      if (paired) return store_pair(to + at, v[0], v[1]);
      to[at] = from_float<bf16>(v[0]);
      if (count > 1) to[at + 1] = from_float<bf16>(v[1]);
    }
  };
};

/// The product of two halves on sm_90, of factors as multiply_sm90 reads them.
void multiply_swiglu_sm90(Stream& stream, const Product& p, const StoreSwiglu& epilogue);

}  // namespace steptrain::cuda
