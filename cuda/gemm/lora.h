// LoRA pairs on the host: their masks, and how a frozen product takes them up.
#pragma once

#include "core/lora.h"
#include "cuda/gemm/product.h"
#include "cuda/gemm/skinny.h"

namespace steptrain::cuda {

/// A pair's mask.
struct DropoutArgs {
  double rate;
  int64_t key0, key1;
};
/// Checks the arguments of the mask for `tokens` rows. Without a LoRA pair there is no mask.
Dropout dropout_of(const char* op, const DropoutArgs& args, int64_t tokens, const TensorView& lora_a,
                   const TensorView& lora_b, const TensorView& row_ids, const TensorView& positions);

inline void drop(Product& p, Dropped what, const Dropout& dropout) {
  p.dropout = dropout;
  p.dropped = dropout.rate > 0 ? what : Dropped::nothing;
}

/// A pair on its way into a product: low = scale · drop(rows)·first, [T, r], whose other factor is `second`.
/// Without a pair `first` is absent.
struct LowRank {
  TensorView rows, first, second;
  TensorView out;  // low for the backward, may be absent
  float scale = 1;
  Dropout dropout;
  const float* u = nullptr;  // with it db += scale · rowsᵀ·u, of rows and a rank that takes_narrow_once
  float* db = nullptr;
};

/// Computes the low-rank rows and adds the pair to `p`, whose lora_scale is set, and is 1 afterwards where the rows are
/// bf16.
void fold_in(Stream& stream, Layout layout, const LowRank& pair, Product& p);
/// The same for two pairs of the same rows, each with a product of its own.
/// One launch for both where nothing is dropped.
void fold_in(Stream& stream, const LowRank& pair, Product& p, const LowRank& twin_pair, Product& twin);

/// One launch for both of aligned bf16 rows and ranks up to kMaxNarrow; else one each. Without `dy` da alone.
void add_lora_gradients(Stream& stream, const LoraGradients& gradients, const TensorView& dy,
                        const TensorView& v, float scale, const Dropout& dropout);

}  // namespace steptrain::cuda
