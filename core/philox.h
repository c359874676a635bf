// Philox 4x32-10 (Salmon et al. 2011): counter-based random numbers, so that a draw depends on its key and
// counter alone, never on a batch slot or on what ran before.
#pragma once

#include <array>
#include <cstdint>

#include "core/host_device.h"

namespace steptrain {

struct Philox4 {
  uint32_t v[4];
};

STEPTRAIN_HOST_DEVICE inline Philox4 philox(Philox4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.v[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.v[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.v[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.v[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Uniform in [0, 1) with 24 bits.
STEPTRAIN_HOST_DEVICE inline float uniform(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// The dropout mask of element k of one token: four neighbouring k share one block.
/// Kept where the draw ≥ rate.
STEPTRAIN_HOST_DEVICE inline bool dropout_keeps(uint32_t row_id, uint32_t position, uint32_t k, float rate,
                                                uint32_t key0, uint32_t key1) {
  const Philox4 block = philox({{k >> 2, position, row_id, 0}}, key0, key1);
  return uniform(block.v[k & 3]) >= rate;
}

}  // namespace steptrain
