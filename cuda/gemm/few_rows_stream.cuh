// The product of up to 16 rows (cuda/gemm/few_rows.cuh): a block takes 16 rows of W (with a twin, of each),
// and each of its eight warps one slice of the depth, which goes from memory to registers to mma with kAhead
// steps under way: no shared memory and no barrier until the slices are added. A warp keeps 4 KiB of W on
// their way, 16 warps of a multiprocessor 64 KiB, where about 20 KiB hide the latency of an H100's memory.
// The rows of x come from the L2 cache, half as many bytes as W for 8 tokens, or normed from shared memory
// (cuda/gemm/few_rows_norm.cuh), while the first steps of W are on their way. Those are asked for before the kernel in
// front has ended: nothing but W is read until then.
#pragma once

#include "cuda/gemm/few_rows_norm.cuh"
#include "cuda/gemm/quantized.cuh"

namespace steptrain::cuda {
namespace few {

constexpr int kStreamRows = 16;  // of W
constexpr int kStreamThreads = 32 * kSlices;
constexpr int kStreamStride =
    kStreamRows + 4;  // floats between tokens: eight rows by four tokens hit all banks

/// How the kernel reads weights: those in bf16 as they lie,
struct PlainWeights {
  struct Shared {};
  __device__ void fill(Shared&) const {}
  struct Reader : RowReader {
    using RowReader::RowReader;
    __device__ uint4 bf16_of(const uint4& read, const Shared&) const { return read; }
  };
};
/// or quantised ones (cuda/gemm/quantized.cuh), of which a launch may have some beside plain ones. What is multiplied has the
/// bits of the dequantised weight.
struct QuantizedWeights {
  Nf4Levels nf4;
  struct Shared {
    float levels[16];
  };
  __device__ void fill(Shared& shared) const {
    if (threadIdx.x < 16) shared.levels[threadIdx.x] = nf4.v[threadIdx.x];
    __syncthreads();
  }
  struct Reader {
    const Factor& f;
    int64_t row;
    int first;
    __device__ Reader(const Factor& f, int64_t row, int lane) : f(f), row(row), first(lane % 4 * kEight) {}
    __device__ uint4 read(int step) const {
      const int64_t column = first + int64_t{step} * kStepDepth;
      if (row >= f.rows || column >= f.columns) return make_uint4(0, 0, 0, 0);
      if (f.format != Format::none) return load_quantized(f, row, column);
      return *reinterpret_cast<const uint4*>(static_cast<const bf16*>(f.data) + row * f.columns + column);
    }
    __device__ uint4 bf16_of(const uint4& read, const Shared& shared) const {
      return f.format == Format::none ? read : quantized_bf16(f, read, shared.levels);
    }
  };
};

template <int kGroups, typename Epilogue, typename Norm, typename Weights>
__global__ void __launch_bounds__(kStreamThreads, 2)
    few_rows_stream_kernel(const __grid_constant__ Product first, const __grid_constant__ Epilogue epilogue,
                           const __grid_constant__ Norm norm, const __grid_constant__ Weights form) {
  constexpr int kHalves = kTwin<Epilogue> ? 2 : 1;
  constexpr int kAhead = 4 / kHalves;
  constexpr int kTokens = kGroup * kGroups;
  __shared__ typename Weights::Shared table;
  __shared__ float slices[kSlices][kHalves][kTokens * kStreamStride], pairs[kHalves][kTokens * kStreamStride];
  int tile = static_cast<int>(blockIdx.x);
  const Product& p = product_of(first, epilogue, kStreamRows, tile);
  const Product& twin = twin_of(epilogue, p);
  const int lane = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32;
  const int64_t column = int64_t{tile} * kStreamRows;

  const auto keep = [&](float* to, int group, const float(&sums)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      to[(group * kGroup + lane % 4 * 2 + i % 2) * kStreamStride + fragment_row(lane, i)] = sums[i];
  };

  {
    form.fill(table);
    const typename Weights::Reader weights[2][2] = {
        {{p.b, column + lane / 4, lane}, {p.b, column + lane / 4 + 8, lane}},
        {{twin.b, column + lane / 4, lane}, {twin.b, column + lane / 4 + 8, lane}}};
    struct Step {
      uint4 weights[kHalves][2], tokens[kGroups];
    } ahead[kAhead];
    const int steps = steps_of(p.depth), end = first_step(steps, slice + 1);
    const auto read_weights = [&](Step& into, int step) {
#pragma unroll
      for (int half = 0; half < kHalves; half++)
#pragma unroll
        for (int i = 0; i < 2; i++) into.weights[half][i] = weights[half][i].read(step);
    };
    const auto read_tokens = [&](Step& into, int step) {
#pragma unroll
      for (int group = 0; group < kGroups && !kNorms<Norm>; group++)
        into.tokens[group] = RowReader(p.a, group * kGroup + lane / 4, lane).read(step);
    };
    const auto token_of = [&](const Step& from, int group, int step) {
      if constexpr (kNorms<Norm>)
        return read_normed(p.a, group * kGroup + lane / 4, step, lane);
      else
        return from.tokens[group];
    };
    int step = first_step(steps, slice);
#pragma unroll
    for (int i = 0; i < kAhead; i++)
      if (step + i < end) read_weights(ahead[i], step + i);
    take_turn();
#pragma unroll
    for (int i = 0; i < kAhead; i++)
      if (step + i < end) read_tokens(ahead[i], step + i);
    if constexpr (kNorms<Norm>) put_normed<kStreamThreads>(p.a, norm);
    float sums[kHalves][kGroups][4] = {};
    for (; step < end; step += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        if (step + i >= end) break;
        uint4 rows[kHalves][2];
#pragma unroll
        for (int half = 0; half < kHalves; half++)
#pragma unroll
          for (int j = 0; j < 2; j++)
            rows[half][j] = weights[half][j].bf16_of(ahead[i].weights[half][j], table);
#pragma unroll
        for (int group = 0; group < kGroups; group++) {
          const uint4 token = token_of(ahead[i], group, step + i);
#pragma unroll
          for (int half = 0; half < kHalves; half++)
            multiply_step(sums[half][group], rows[half][0], rows[half][1], token);
        }
        if (step + i + kAhead >= end) continue;
        read_weights(ahead[i], step + i + kAhead);
        read_tokens(ahead[i], step + i + kAhead);
      }
    }
#pragma unroll
    for (int half = 0; half < kHalves; half++)
#pragma unroll
      for (int group = 0; group < kGroups; group++) keep(slices[slice][half], group, sums[half][group]);
  }
  // Each pair by a warp of its own.
  if (slice < kHalves * kGroups) {
    float sums[4];
    lora_sums(slice < kGroups ? p : twin, column, slice % kGroups * kGroup, lane, sums);
    keep(pairs[slice / kGroups], slice % kGroups, sums);
  }
  __syncthreads();
  store_outputs<kTokens, kStreamRows, kStreamThreads>(p, epilogue, 0, column,
                                                      [&](int half, int token, int beside) {
                                                        const int at = token * kStreamStride + beside;
                                                        float sum = pairs[half][at];
#pragma unroll
                                                        for (int i = 0; i < kSlices; i++)
                                                          sum += slices[i][half][at];
                                                        return sum;
                                                      });
}

template <typename Weights, int kGroups, typename Epilogue, typename Norm>
void launch_stream(const Weights& form, Stream& stream, const Product& p, const Epilogue& epilogue,
                   const Norm& norm) {
  const int64_t shared = kNorms<Norm> ? p.rows * norm_stride(p.depth) : 0;
  const auto weights_of = [](const Product& of) {
    const Factor& b = of.b;
    return Span{b.data, b.format == Format::none ? b.rows * b.columns * 2 : b.parts.bytes};
  };
  const auto launch = [&](std::initializer_list<Span> weights) {
    stream.launch_early(weights, few_rows_stream_kernel<kGroups, Epilogue, Norm, Weights>,
                        column_tiles(p, epilogue, kStreamRows), kStreamThreads, shared, p, epilogue, norm,
                        form);
  };
  if constexpr (kSeveral<Epilogue>) {
    launch({weights_of(epilogue.of[0]), weights_of(epilogue.of[1]), weights_of(epilogue.of[2])});
  } else if constexpr (kTwin<Epilogue>) {
    launch({weights_of(p), weights_of(epilogue.twin)});
  } else {
    launch({weights_of(p)});
  }
}

/// Whether a launch has a quantised weight.
template <typename Epilogue>
bool has_quantized(const Product& p, const Epilogue& epilogue) {
  const auto is = [](const Product& of) { return of.b.format != Format::none; };
  if constexpr (kSeveral<Epilogue>) {
    return is(epilogue.of[0]) || is(epilogue.of[1]) || is(epilogue.of[2]);
  } else {
    return is(p) || is(twin_of(epilogue, p));
  }
}

template <int kGroups, typename Epilogue, typename Norm = NoNorm>
void launch_stream(Stream& stream, const Product& p, const Epilogue& epilogue, const Norm& norm = {}) {
  // Rows are normed here for plain weights alone (can_norm).
  if constexpr (!kNorms<Norm>) {
    if (has_quantized(p, epilogue))
      return launch_stream<QuantizedWeights, kGroups>(QuantizedWeights{nf4_levels()}, stream, p, epilogue,
                                                      norm);
  }
  launch_stream<PlainWeights, kGroups>(PlainWeights{}, stream, p, epilogue, norm);
}

}  // namespace few
}  // namespace steptrain::cuda
