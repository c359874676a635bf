// New tokens on their way into the cache.
#pragma once

#include "cuda/attention/page.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

/// Of attention_step's inputs.
constexpr int kStepPages = 4, kStepLengths = 5;

/// Where new tokens stand: slots, and positions where keys are rotated; or, in a step of decoding, lengths and pages: the token of a
/// row is its last. `longest`: positions that there are.
struct NewPlaces {
  const int32_t *slots, *positions, *lengths, *pages;
  int32_t max_pages;
  int64_t longest;
};

struct NewTensors {
  TensorView k, v, cache, cosines, sines, k_weight, q, q_weight, rotated;
};

/// cache_write of checked tensors; one launch.
void write_new(const NewTensors& tensors, const NewPlaces& places, float eps, Stream& stream);

}  // namespace steptrain::cuda
