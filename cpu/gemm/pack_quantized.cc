// quantize: a row-major [N,K] to the bytes that files have of it, and pack_quantized: these to the layout of products
// (cpu/gemm/quantized.h); outputs are overwritten.
#include <cmath>

#include "cpu/gemm/quantized.h"
#include "cpu/runtime/families.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// The bytes of a weight as files have them.
struct Stored {
  const uint8_t* bytes;
  Format format;
  int64_t n, k;

  const uint8_t* block(int64_t row, int64_t feature, int64_t values, int64_t size) const {
    return bytes + (row * (k / values) + feature / values) * size;
  }
  /// After the codes.
  const uint8_t* scales() const { return bytes + n * k * bits_of(format) / 8; }

  uint32_t code(int64_t row, int64_t at) const {
    switch (format) {
      case Format::nf4:
      case Format::nf4_double: {
        const int64_t i = row * k + at;
        return bytes[i / 2] >> (i % 2 ? 0 : 4) & 15u;
      }
      case Format::q4_0:
        return block(row, at, 32, 18)[2 + at % 16] >> (at % 32 < 16 ? 0 : 4) & 15u;
      case Format::q4_1:
        return block(row, at, 32, 20)[4 + at % 16] >> (at % 32 < 16 ? 0 : 4) & 15u;
      case Format::q4_k: {
        const int64_t i = at % 256;
        return block(row, at, 256, 144)[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 ? 4 : 0) & 15u;
      }
      case Format::q6_k: {
        const uint8_t* const super = block(row, at, 256, 210);
        const int64_t i = at % 256, half = i / 128, quarter = i / 32 % 4, l = i % 32;
        const uint32_t low = super[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2)) & 15u;
        const uint32_t high = super[128 + 32 * half + l] >> (2 * quarter) & 3u;
        return ((low | high << 4) - 32u) & 255u;
      }
      case Format::q8_0:
        return block(row, at, 32, 34)[2 + at % 32];
      default:
        return bytes[row * k + at];
    }
  }
};

void pack_codes(const Stored& from, int64_t panel, uint8_t* codes) {
  const int bits = bits_of(from.format);
  const int64_t steps = 16 / bits, first = panel * kPanel, rows = std::min(kPanel, from.n - first);
  std::memset(codes, 0, static_cast<size_t>(code_bytes(from.format, from.k)));
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t k = 0; k < from.k; k++) {
      uint8_t* const chunk = codes + k / steps * 4 * kLanes;
      const uint32_t code = from.code(first + row, k);
      if (bits == 8) {
        chunk[2 * row + k % 2] = static_cast<uint8_t>(code);
        continue;
      }
      const int64_t vector = k % steps / 2 * 2 + row / kLanes, lane = 2 * (row % kLanes) + k % 2;
      uint8_t* const byte = chunk + 2 * lane + vector / 2;
      *byte = static_cast<uint8_t>(*byte | code << 4 * (vector % 2));
    }
  }
}

/// ggml's six bits of scale and of least value of block j of eight.
void six_bits(const uint8_t* packed, int64_t j, uint8_t& scale, uint8_t& least) {
  if (j < 4) {
    scale = packed[j] & 63u, least = packed[j + 4] & 63u;
  } else {
    scale = static_cast<uint8_t>((packed[j + 4] & 15u) | packed[j - 4] >> 6 << 4);
    least = static_cast<uint8_t>(packed[j + 4] >> 4 | packed[j] >> 6 << 4);
  }
}

void pack_scales(const Stored& from, int64_t panel, uint8_t* scales) {
  const Format format = from.format;
  const int64_t first = panel * kPanel, rows = std::min(kPanel, from.n - first);
  const int64_t blocks = scale_blocks(format, from.k), size = scale_bytes(format);
  std::memset(scales, 0, static_cast<size_t>(blocks * size));
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t b = 0; b < blocks; b++) {
      uint8_t* const to = scales + b * size;
      const int64_t n = first + row;
      switch (format) {
        case Format::nf4_double:
          to[row] = from.scales()[n * blocks + b];
          break;
        case Format::q4_0:
          std::memcpy(to + 2 * row, from.block(n, b * 32, 32, 18), 2);
          break;
        case Format::q8_0:
          std::memcpy(to + 2 * row, from.block(n, b * 32, 32, 34), 2);
          break;
        case Format::q4_1:
          std::memcpy(to + 2 * row, from.block(n, b * 32, 32, 20), 2);
          std::memcpy(to + 2 * (kPanel + row), from.block(n, b * 32, 32, 20) + 2, 2);
          break;
        case Format::q4_k: {
          const uint8_t* const super = from.block(n, b * 256, 256, 144);
          std::memcpy(to + 2 * row, super, 2);
          std::memcpy(to + 2 * (kPanel + row), super + 2, 2);
          for (int64_t j = 0; j < 8; j++) {
            uint8_t* const own = to + 4 * kPanel + j * 2 * kPanel + row;
            six_bits(super + 4, j, own[0], own[kPanel]);
          }
          break;
        }
        case Format::q6_k: {
          const uint8_t* const super = from.block(n, b * 256, 256, 210);
          std::memcpy(to + 2 * row, super + 208, 2);
          for (int64_t j = 0; j < 16; j++) to[(2 + j) * kPanel + row] = super[192 + j];
          break;
        }
        case Format::e4m3_128:
          std::memcpy(to + 4 * row, from.scales() + 4 * (n / 128 * blocks + b), 4);
          break;
        default:
          std::memcpy(to + 4 * row, from.scales() + 4 * (n * blocks + b), 4);
      }
    }
  }
}

void pack_quantized(Stream& stream, const Args& args) {
  const auto [bytes, y] = args.tensors<2>();
  const int64_t n = y[0], k = y[1];
  check_quantized("pack_quantized", y.format, n, k, bytes[0]);
  const Stored from{bytes.as<const uint8_t>(), y.format, n, k};
  const QuantizedParts to(y);
  stream.pool.run(panels(n), [&, &y = y](int64_t panel) {
    pack_codes(from, panel, to.codes + panel * to.panel_codes);
    pack_scales(from, panel, to.scales + panel * to.panel_scales);
  });
  if (y.format != Format::nf4_double) return;
  const int64_t blocks = n * k / 64, nested = (blocks + kNestedBlock - 1) / kNestedBlock;
  const uint8_t* const second = from.scales() + blocks;
  const uint8_t* const levels = second + 4 * nested;
#if defined(__AVX512F__)
  NestedLevels::pack(levels, to.shared);
#else
  std::memcpy(to.shared, levels, 4 * kNestedLevels);
#endif
  std::memcpy(to.shared + kNestedLevels, levels + 4 * kNestedLevels, 4);
  std::memcpy(to.shared + kNestedLevels + 1, second, static_cast<size_t>(4 * nested));
}

// ---- quantize ------------------------------------------------------------------------------------------------------

/// Codes and absmax of one block of 64.
template <typename S>
float nf4_block(const S* w, uint8_t* codes) {
  float most = 0;
  for (int i = 0; i < 64; i++) most = std::max(most, std::abs(to_float(w[i])));
  const float inverse = 1.0f / most;
  for (int i = 0; i < 64; i += 2) {
    const auto code = [&](int j) -> unsigned {
      return most > 0 ? nearest_level(kNf4.data(), 16, to_float(w[j]) * inverse) : 7u;
    };
    codes[i / 2] = static_cast<uint8_t>(code(i) << 4 | code(i + 1));
  }
  return most;
}

template <typename S>
void to_nf4(Stream& stream, const TensorView& w, bool twice, uint8_t* out) {
  const int64_t n = w[0], row = w[1] / 64, blocks = n * row;
  uint8_t* const scales = out + blocks * 32;
  float* const most = stream.scratch.take<float>(blocks);
  stream.pool.run(n, [&](int64_t i) {
    for (int64_t b = i * row; b < (i + 1) * row; b++)
      most[b] = nf4_block(w.as<const S>() + b * 64, out + b * 32);
  });
  if (!twice) {
    std::memcpy(scales, most, static_cast<size_t>(4 * blocks));
    return;
  }
  const int64_t nested = (blocks + kNestedBlock - 1) / kNestedBlock;
  double sum = 0;
  for (int64_t b = 0; b < blocks; b++) sum += most[b];
  const auto offset = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(blocks, 1)));
  float levels[kNestedLevels];
  dynamic_levels(levels);
  uint8_t* const second = scales + blocks;
  stream.pool.run(nested, [&](int64_t s) {
    const int64_t last = std::min(blocks, (s + 1) * kNestedBlock);
    float largest = 0;
    for (int64_t b = s * kNestedBlock; b < last; b++) largest = std::max(largest, std::abs(most[b] - offset));
    std::memcpy(second + 4 * s, &largest, 4);
    const float inverse = largest > 0 ? 1.0f / largest : 0.0f;
    for (int64_t b = s * kNestedBlock; b < last; b++)
      scales[b] = static_cast<uint8_t>(nearest_level(levels, kNestedLevels, (most[b] - offset) * inverse));
  });
  std::memcpy(second + 4 * nested, levels, sizeof levels);
  std::memcpy(second + 4 * (nested + kNestedLevels), &offset, 4);
}

/// By row; halfway to even.
template <typename S>
void to_int8(Stream& stream, const TensorView& w, uint8_t* out) {
  const int64_t n = w[0], k = w[1];
  stream.pool.run(n, [&](int64_t i) {
    const S* const row = w.as<const S>() + i * k;
    float most = 0;
    for (int64_t j = 0; j < k; j++) most = std::max(most, std::abs(to_float(row[j])));
    const float scale = most / 127.0f;
    for (int64_t j = 0; j < k; j++) {
      const float code = scale > 0 ? std::nearbyint(to_float(row[j]) / scale) : 0.0f;
      out[i * k + j] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f)));
    }
    std::memcpy(out + n * k + 4 * i, &scale, 4);
  });
}

void quantize(Stream& stream, const Args& args) {
  const auto [w, bytes] = args.tensors<2>();
  constexpr Format formats[] = {Format::nf4, Format::nf4_double, Format::int8};
  const Format format = formats[args.i(0)];
  check_quantized("quantize", format, w[0], w[1], bytes[0]);
  uint8_t* const out = bytes.as<uint8_t>();
  by_storage(w.dtype, [&, &w = w](auto t) {
    using S = decltype(t);
    if (format == Format::int8) {
      to_int8<S>(stream, w, out);
    } else {
      to_nf4<S>(stream, w, format == Format::nf4_double, out);
    }
  });
}

}  // namespace

void register_pack_quantized(KernelTable& table) {
  table.set("quantize", quantize);
  table.set("pack_quantized", pack_quantized);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
