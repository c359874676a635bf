// New tokens on their way into the cache, for cache_write and attention_step.
#pragma once

#include "core/tensor.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// The tensors of cache_write.
struct NewTokens {
  TensorView k, v, slots, cache, cosines, sines, positions, k_weight, q, q_weight, rotated;
};

/// cache_write, whose slots are in the cache and whose positions are in the tables. `op` names the op in errors.
void write_new(const char* op, Stream& stream, const NewTokens& tokens, float eps);

}  // namespace steptrain::cpu::STEPTRAIN_ISA
