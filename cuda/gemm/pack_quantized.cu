// quantize: a row-major [N,K] to the bytes that files have of it, and pack_quantized: these to the layout of products
// (cuda/gemm/quantized.h), copies alone; outputs are overwritten. quantize runs once for a weight: a thread takes a block of
// NF4, a block of threads a row of int8.
#include "cuda/gemm/quantized.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;

int64_t blocks_of_threads(int64_t n) {
  return (n + kThreads - 1) / kThreads;
}

template <typename S>
__global__ void __launch_bounds__(kThreads)
    nf4_kernel(const S* w, int64_t blocks, const __grid_constant__ Nf4Levels levels, uint8_t* codes,
               float* most) {
  const int64_t block = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (block >= blocks) return;
  const S* const from = w + block * 64;
  float largest = 0;
  for (int i = 0; i < 64; i++) largest = fmaxf(largest, fabsf(to_float(from[i])));
  const float inverse = 1.0f / largest;
  for (int i = 0; i < 64; i += 2) {
    unsigned pair[2];
    for (int j = 0; j < 2; j++)
      pair[j] = largest > 0 ? nearest_level(levels.v, 16, to_float(from[i + j]) * inverse) : 7u;
    codes[block * 32 + i / 2] = static_cast<uint8_t>(pair[0] << 4 | pair[1]);
  }
  most[block] = largest;
}

/// The mean, by one block of threads.
__global__ void __launch_bounds__(kThreads) mean_kernel(const float* values, int64_t n, float* mean) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += values[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(n > 0 ? n : 1));
}

struct DynamicLevels {
  float v[kNestedLevels];
};

/// A block of threads for a second-level block. `second`, `levels` and `offset` have no alignment.
__global__ void __launch_bounds__(kNestedBlock)
    nested_kernel(const float* most, int64_t blocks, const float* mean,
                  const __grid_constant__ DynamicLevels levels, uint8_t* codes, uint8_t* second,
                  uint8_t* levels_to) {
  static_assert(kNestedBlock == kNestedLevels);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t block = int64_t{blockIdx.x} * kNestedBlock + thread;
  const float offset = *mean;
  const float own = block < blocks ? most[block] - offset : 0.0f;
  const float largest = block_max(fabsf(own));
  const float inverse = largest > 0 ? 1.0f / largest : 0.0f;
  if (block < blocks)
    codes[block] = static_cast<uint8_t>(nearest_level(levels.v, kNestedLevels, own * inverse));
  const auto put = [](uint8_t* to, float value) {
    const uint32_t bits = __float_as_uint(value);
    for (int i = 0; i < 4; i++) to[i] = static_cast<uint8_t>(bits >> (8 * i));
  };
  if (thread == 0) put(second + 4 * int64_t{blockIdx.x}, largest);
  if (blockIdx.x > 0) return;
  put(levels_to + 4 * thread, levels.v[thread]);
  if (thread == 0) put(levels_to + 4 * kNestedLevels, offset);
}

template <typename S>
__global__ void __launch_bounds__(kThreads)
    int8_kernel(const S* w, int64_t k, uint8_t* codes, float* scales) {
  const int64_t row = blockIdx.x;
  float most = 0;
  for (int64_t i = threadIdx.x; i < k; i += kThreads) most = fmaxf(most, fabsf(to_float(w[row * k + i])));
  const float scale = block_max(most) / 127.0f;
  for (int64_t i = threadIdx.x; i < k; i += kThreads) {
    const float code = scale > 0 ? rintf(to_float(w[row * k + i]) / scale) : 0.0f;
    codes[row * k + i] = static_cast<uint8_t>(static_cast<int8_t>(fminf(fmaxf(code, -127.0f), 127.0f)));
  }
  if (threadIdx.x == 0) scales[row] = scale;
}

template <typename S>
void to_nf4(Stream& stream, const TensorView& w, bool twice, uint8_t* out) {
  const int64_t blocks = w.numel() / 64;
  uint8_t* const scales = out + blocks * 32;
  float* const most = twice ? stream.scratch.take<float>(blocks) : reinterpret_cast<float*>(scales);
  stream.launch(nf4_kernel<S>, blocks_of_threads(blocks), kThreads, 0, w.as<const S>(), blocks, nf4_levels(),
                out, most);
  if (!twice) return;
  float* const mean = stream.scratch.take<float>(1);
  stream.launch(mean_kernel, 1, kThreads, 0, static_cast<const float*>(most), blocks, mean);
  DynamicLevels levels;
  dynamic_levels(levels.v);
  const int64_t nested = (blocks + kNestedBlock - 1) / kNestedBlock;
  uint8_t* const second = scales + blocks;
  stream.launch(nested_kernel, nested, static_cast<int>(kNestedBlock), 0, static_cast<const float*>(most),
                blocks, static_cast<const float*>(mean), levels, scales, second, second + 4 * nested);
}

void quantize(Stream& stream, const Args& args) {
  const auto [w, bytes] = args.tensors<2>();
  constexpr Format formats[] = {Format::nf4, Format::nf4_double, Format::int8};
  const Format format = formats[args.i(0)];
  check_quantized("quantize", format, w[0], w[1], bytes[0]);
  uint8_t* const out = bytes.as<uint8_t>();
  by_storage(w.dtype, [&, &w = w](auto t) {
    using S = decltype(t);
    if (format != Format::int8) return to_nf4<S>(stream, w, format == Format::nf4_double, out);
    stream.launch(int8_kernel<S>, w[0], kThreads, 0, w.as<const S>(), w[1], out,
                  reinterpret_cast<float*>(out + w.numel()));
  });
}

void pack_quantized(Stream& stream, const Args& args) {
  const auto [bytes, y] = args.tensors<2>();
  const int64_t n = y[0], k = y[1];
  check_quantized("pack_quantized", y.format, n, k, bytes[0]);
  const QuantizedParts parts(y.format, n, k);
  const uint8_t* from = bytes.as<const uint8_t>();
  const auto copy = [&, &y = y](int64_t to, int64_t size) {
    stream.copy(y.as<uint8_t>() + to, from, size);
    from += size;
  };
  if (parts.bytes == parts.scales) return copy(0, bytes[0]);
  copy(0, n * k * bits_of(y.format) / 8);
  if (y.format != Format::nf4_double) return copy(parts.scales, bytes[0] - n * k * bits_of(y.format) / 8);
  const int64_t blocks = n * k / 64;
  copy(parts.scales, blocks);
  copy(parts.nested, 4 * ((blocks + kNestedBlock - 1) / kNestedBlock));
  copy(parts.levels, 4 * (kNestedLevels + 1));
}

}  // namespace

void register_pack_quantized(KernelTable& table) {
  table.set("quantize", quantize);
  table.set("pack_quantized", pack_quantized);
}

}  // namespace steptrain::cuda
