// LoRA pairs on the host: their masks, and their way into the product that they are folded into.
#pragma once

#include "cuda/gemm/product.h"
#include "cuda/gemm/skinny.h"

namespace steptrain::cuda {

/// A pair's mask.
struct DropoutArgs {
  double rate;
  int64_t key0, key1;
};
/// The mask's arguments checked for `tokens` rows; no mask without a LoRA pair.
Dropout dropout_of(const char* op, const DropoutArgs& args, int64_t tokens, const TensorView& lora_a,
                   const TensorView& lora_b, const TensorView& row_ids, const TensorView& positions);

inline void drop(Product& p, Dropped what, const Dropout& dropout) {
  p.dropout = dropout;
  p.dropped = dropout.rate > 0 ? what : Dropped::nothing;
}

/// low = scale · drop(rows)·first, [T, r], is extra depth of a product, where `second` is its other factor.
/// Without a pair `first` is absent.
struct LowRank {
  TensorView rows, first, second;
  TensorView out;  // where low is kept, may be absent
  float scale = 1;
  Dropout dropout;
};

/// Makes the low-rank rows and has `p` go on with them.
void fold_in(Stream& stream, Layout layout, const LowRank& pair, Product& p);
/// Two pairs of the same rows, each into a product of its own; in one launch where nothing is dropped.
void fold_in(Stream& stream, const LowRank& pair, Product& p, const LowRank& twin_pair, Product& twin);

}  // namespace steptrain::cuda
