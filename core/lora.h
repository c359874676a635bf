// What linear_dx of both devices is given to train its LoRA pair.
#pragma once

#include "core/error.h"
#include "core/tensor.h"

namespace steptrain {

/// da[r,K] += vᵀ·drop(x), db[N,r] += scale·dyᵀ·u; without `x` nothing.
struct LoraGradients {
  TensorView x, u, da, db;
};

/// Throws Error(E_SHAPE) where the gradients are not all there with their pair, or v without a pair. A v that they need and
/// that nobody asked for comes from `scratch`.
template <typename Scratch>
void check_gradients(const LoraGradients& of, const TensorView& lora_a, TensorView& v, Scratch& scratch) {
  if (v && !lora_a) throw Error("E_SHAPE", "linear_dx: v is the LoRA pair's; pass lora_a and lora_b or no v");
  if (!(of.x || of.u || of.da || of.db)) return;
  if (!(of.x && of.u && of.da && of.db && lora_a))
    throw Error("E_SHAPE", "linear_dx: x, u, da and db come together, with lora_a and lora_b");
  if (v) return;
  v = of.u;
  v.data = scratch.template take<float>(of.u.numel());
}

}  // namespace steptrain
