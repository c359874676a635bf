// Quantised weights (core/quantized.h) on a GPU: the bytes of files, whose scales and levels begin at whole 16 bytes.
#pragma once

#include "core/quantized.h"

namespace steptrain::cuda {

/// Where the parts of a packed weight begin, and its bytes in all.
struct QuantizedParts {
  int64_t scales = 0, nested = 0, levels = 0,
          bytes = 0;  // levels: of the first scales, and behind them their offset

  QuantizedParts() = default;
  QuantizedParts(Format format, int64_t n, int64_t k) {
    const auto whole = [](int64_t size) { return (size + 15) / 16 * 16; };
    const int64_t blocks = n * blocks_of(format, k);
    const bool in_blocks = format >= Format::q4_0;  // ggml's come last
    const int64_t codes = in_blocks ? stored_bytes(format, n, k) : n * k * bits_of(format) / 8;
    const int64_t scale_bytes = in_blocks                      ? 0
                                : format == Format::nf4_double ? blocks
                                : format == Format::e4m3_128   ? 4 * ((n + 127) / 128) * blocks_of(format, k)
                                                               : 4 * blocks;
    const bool is_nested = format == Format::nf4_double;
    scales = whole(codes);
    nested = scales + whole(scale_bytes);
    levels = nested + (is_nested ? whole(4 * ((blocks + kNestedBlock - 1) / kNestedBlock)) : 0);
    bytes = levels + (is_nested ? 4 * (kNestedLevels + 1) : 0);
  }
};

}  // namespace steptrain::cuda
