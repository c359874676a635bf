// Advantages and step bookkeeping over ragged sequences: gae, whiten, group_advantages, and the sums over
// spans with their gradient. Everything is f32 in memory and f64 in the recurrences and sums, whose order
// depends on the sizes alone. Outputs are `=`. One launch each, three to whiten many rows.
#include <algorithm>

#include "core/error.h"
#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = kThreads / kWarp;

/// Blocks for `warps` warps; at least one, which checks the offsets even where there is no range.
int64_t blocks_of_warps(int64_t warps) {
  return warps == 0 ? 1 : (warps + kWarps - 1) / kWarps;
}

/// The number of ranges of `offsets`, which must not be empty.
int64_t range_count(const char* op, const char* name, const TensorView& offsets) {
  if (offsets[0] < 1) throw Error("E_RANGE", format("%s: %s is empty, expected at least one 0", op, name));
  return offsets[0] - 1;
}

/// Schulman et al. 2016: δ_t = r_t + γ V_{t+1} - V_t, A_t = δ_t + γλ A_{t+1}; returns = A + V. After the last
/// token V is last_values of the sequence, or 0. A warp takes a sequence from its end, 32 tokens at a time:
/// an inclusive scan of the affine steps, by doubling distance.
__global__ void __launch_bounds__(kThreads)
    gae_kernel(const float* rewards, const float* values, const int32_t* cu_seqlens, const float* last_values,
               float* advantages, float* returns, int64_t sequences, int64_t tokens, double gamma,
               double decay, FaultReporter faults) {
  constexpr int kSeqlens = 2;
  const int64_t b = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (sequences == 0 && b == 0 && lane == 0) no_range_holds(faults, kSeqlens, cu_seqlens, tokens);
  if (b >= sequences) return;
  int64_t begin, end;
  if (!range_holds(faults, kSeqlens, cu_seqlens, b, sequences, tokens, begin, end)) return;
  double after = last_values ? last_values[b] : 0;  // V and A of the token after the 32
  double carried = 0;
  for (int64_t top = end; top > begin; top -= kWarp) {
    const int64_t t = top - 1 - lane;  // lane 0 has the last
    const bool inside = t >= begin;
    const double value = inside ? values[t] : 0;
    const double shifted = __shfl_up_sync(kAll, value, 1);
    const double next = lane == 0 ? after : shifted;
    double sum = inside ? rewards[t] + gamma * next - value : 0;
    double factor = decay;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const double earlier = __shfl_up_sync(kAll, sum, distance);
      if (lane >= distance) sum += factor * earlier;
      factor *= factor;
    }
    // decay^(lane + 1) times the advantage after these tokens.
    double power = decay;
    for (int i = 0; i < lane; i++) power *= decay;
    sum += power * carried;
    if (inside) {
      advantages[t] = static_cast<float>(sum);
      returns[t] = static_cast<float>(sum + value);
    }
    carried = __shfl_sync(kAll, sum, kWarp - 1);
    after = __shfl_sync(kAll, value, kWarp - 1);
  }
}

void gae(Stream& stream, const Args& args) {
  const auto [rewards, values, cu_seqlens, last_values, advantages, returns] = args.tensors<6>();
  const int64_t sequences = range_count("gae", "cu_seqlens", cu_seqlens);
  const double gamma = args.d(0);
  stream.launch(gae_kernel, blocks_of_warps(sequences), kThreads, 0, rewards.as<float>(), values.as<float>(),
                cu_seqlens.as<int32_t>(), last_values.as<float>(), advantages.as<float>(),
                returns.as<float>(), sequences, rewards[0], gamma, gamma * args.d(1), stream.faults);
}

constexpr int kWhitenThreads = 1024;

/// One block, for few rows: the mean, the variance, then the output. The variance of a single row is 0.
__global__ void __launch_bounds__(kWhitenThreads)
    whiten_kernel(const float* x, const float* mask, float* y, int64_t n, bool bessel, bool shift,
                  double eps) {
  const auto rows = [&](auto body) {
    for (int64_t i = threadIdx.x; i < n; i += kWhitenThreads) body(i, !mask || mask[i] != 0);
  };
  double sum = 0, count = 0;
  rows([&](int64_t i, bool kept) {
    sum += kept ? x[i] : 0.0f;
    count += kept ? 1 : 0;
  });
  sum = block_sum(sum);
  count = block_sum(count);
  const double mean = count > 0 ? sum / count : 0;
  double square = 0;
  rows([&](int64_t i, bool kept) {
    const double gap = kept ? x[i] - mean : 0;
    square += gap * gap;
  });
  square = block_sum(square);
  const double variance = count > 1 ? square / (count - (bessel ? 1 : 0)) : 0;
  const double scale = 1 / sqrt(variance + eps), offset = shift ? 0 : mean;
  rows([&](int64_t i, bool kept) {
    const double gap = kept ? x[i] - mean : 0;
    y[i] = kept ? static_cast<float>((gap == 0 ? 0 : gap * scale) + offset) : 0.0f;
  });
}

// Of long inputs: kWhitenPartRows rows or more a block, in three launches. Each block of the second and third
// adds the partial sums of the one before for itself, so all have the same mean and variance.
constexpr int64_t kWhitenParts = kThreads, kWhitenPartRows = 2048, kWhitenFewRows = 24 << 10;

struct Whitening {
  const float *x, *mask;  // mask may be null
  float* y;
  int64_t n, each;                  // rows; of a block
  int parts;                        // blocks
  double *sums, *counts, *squares;  // [parts]
  double eps;
  bool bessel, shift;

  /// body(i, whether row i counts) for this block's rows.
  template <typename Body>
  __device__ void rows(Body body) const {
    const int64_t begin = blockIdx.x * each, end = begin + each < n ? begin + each : n;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) body(i, !mask || mask[i] != 0);
  }
  /// Σ of the blocks' partial sums.
  __device__ double total(const double* partial) const {
    return block_sum(static_cast<int>(threadIdx.x) < parts ? partial[threadIdx.x] : 0.0);
  }
  __device__ double mean(double count) const {
    return count > 0 ? total(sums) / count : 0;
  }
};

__global__ void __launch_bounds__(kThreads) whiten_sum_kernel(const Whitening w) {
  double sum = 0, count = 0;
  w.rows([&](int64_t i, bool kept) {
    sum += kept ? w.x[i] : 0.0f;
    count += kept ? 1 : 0;
  });
  sum = block_sum(sum);
  count = block_sum(count);
  if (threadIdx.x == 0) w.sums[blockIdx.x] = sum, w.counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(kThreads) whiten_square_kernel(const Whitening w) {
  const double mean = w.mean(w.total(w.counts));
  double square = 0;
  w.rows([&](int64_t i, bool kept) {
    const double gap = kept ? w.x[i] - mean : 0;
    square += gap * gap;
  });
  square = block_sum(square);
  if (threadIdx.x == 0) w.squares[blockIdx.x] = square;
}

__global__ void __launch_bounds__(kThreads) whiten_scale_kernel(const Whitening w) {
  const double count = w.total(w.counts), mean = w.mean(count), square = w.total(w.squares);
  const double variance = count > 1 ? square / (count - (w.bessel ? 1 : 0)) : 0;
  const double scale = 1 / sqrt(variance + w.eps), offset = w.shift ? 0 : mean;
  w.rows([&](int64_t i, bool kept) {
    const double gap = kept ? w.x[i] - mean : 0;
    w.y[i] = kept ? static_cast<float>((gap == 0 ? 0 : gap * scale) + offset) : 0.0f;
  });
}

void whiten_parts(Stream& stream, Whitening w) {
  w.parts = static_cast<int>(std::min(kWhitenParts, (w.n + kWhitenPartRows - 1) / kWhitenPartRows));
  w.each = (w.n + w.parts - 1) / w.parts;
  w.sums = stream.scratch.take<double>(w.parts);
  w.counts = stream.scratch.take<double>(w.parts);
  w.squares = stream.scratch.take<double>(w.parts);
  stream.launch(whiten_sum_kernel, w.parts, kThreads, 0, w);
  stream.launch(whiten_square_kernel, w.parts, kThreads, 0, w);
  stream.launch(whiten_scale_kernel, w.parts, kThreads, 0, w);
}

void whiten(Stream& stream, const Args& args) {
  const auto [x, mask, y] = args.tensors<3>();
  if (x[0] > kWhitenFewRows)
    return whiten_parts(stream, {x.as<float>(), mask.as<float>(), y.as<float>(), x[0], 0, 0, nullptr, nullptr,
                                 nullptr, args.d(2), args.i(0) != 0, args.i(1) != 0});
  stream.launch(whiten_kernel, x[0] > 0 ? 1 : 0, kWhitenThreads, 0, x.as<float>(), mask.as<float>(),
                y.as<float>(), x[0], args.i(0) != 0, args.i(1) != 0, args.d(2));
}

enum GroupKind { kGrpo, kMeanOnly, kLeaveOneOut };

__global__ void __launch_bounds__(kThreads, 4)
    group_advantages_kernel(const float* rewards, const int32_t* offsets, float* advantages, int64_t groups,
                            int64_t n, int kind, double eps, FaultReporter faults) {
  const int64_t g = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (groups == 0 && g == 0) no_range_holds(faults, 1, offsets, n);
  if (g >= groups) return;
  int64_t begin, end;
  if (!range_holds(faults, 1, offsets, g, groups, n, begin, end)) return;
  const double size = static_cast<double>(end - begin);
  double sum = 0, square = 0;
  for (int64_t i = begin; i < end; i++) sum += rewards[i];
  const double mean = sum / size;
  for (int64_t i = begin; i < end; i++) square += (rewards[i] - mean) * (rewards[i] - mean);
  double scale = 1;
  if (kind == kGrpo) scale = 1 / (sqrt(square / (size - 1)) + eps);
  if (kind == kLeaveOneOut) scale = size / (size - 1);
  for (int64_t i = begin; i < end; i++) {
    const double lead = rewards[i] - mean;
    advantages[i] = static_cast<float>(lead == 0 ? 0 : lead * scale);
  }
}

/// GRPO (Shao et al. 2024), its variant without the deviation (Dr. GRPO), RLOO (Ahmadian et al. 2024). A
/// thread takes a group.
void group_advantages(Stream& stream, const Args& args) {
  const auto [rewards, offsets, advantages] = args.tensors<3>();
  const int64_t kind = args.i(0);
  const int64_t groups = range_count("group_advantages", "offsets", offsets);
  stream.launch(group_advantages_kernel, groups == 0 ? 1 : (groups + kThreads - 1) / kThreads, kThreads, 0,
                rewards.as<float>(), offsets.as<int32_t>(), advantages.as<float>(), groups, rewards[0], kind,
                args.d(1), stream.faults);
}

__device__ bool span_holds(const FaultReporter& faults, const int32_t* spans, int64_t s, int64_t total) {
  const int32_t begin = spans[2 * s], end = spans[2 * s + 1];
  if (begin >= 0 && begin <= end && end <= total) return true;
  report(faults, FaultKind::span, 1, s, begin, total, end);
  return false;
}

/// A warp takes a span: a lane adds its tokens in order, then lanes are added by halving distance.
__global__ void __launch_bounds__(kThreads)
    span_sum_kernel(const float* x, const int32_t* spans, const float* weights, float* y, int64_t count,
                    int64_t total, bool mean, FaultReporter faults) {
  const int64_t s = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (s >= count || !span_holds(faults, spans, s, total)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  double sum = 0;
  for (int64_t t = spans[2 * s] + lane; t < spans[2 * s + 1]; t += kWarp) sum += x[t];
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAll, sum, distance);
  const int64_t length = spans[2 * s + 1] - spans[2 * s];
  if (mean && length > 0) sum /= static_cast<double>(length);
  if (lane == 0) y[s] = static_cast<float>(weights ? sum * weights[s] : sum);
}

void span_sum(Stream& stream, const Args& args) {
  const auto [x, spans, weights, y] = args.tensors<4>();
  stream.launch(span_sum_kernel, (spans[0] + kWarps - 1) / kWarps, kThreads, 0, x.as<float>(),
                spans.as<int32_t>(), weights.as<float>(), y.as<float>(), spans[0], x[0], args.i(0) != 0,
                stream.faults);
}

/// A thread takes a token and walks over all spans, so that overlapping ones are added in order. The first
/// block checks the spans; one out of range writes nothing outside the tensor.
__global__ void __launch_bounds__(kThreads)
    span_spread_kernel(const float* dy, const int32_t* spans, const float* weights, float* dx, int64_t count,
                       int64_t total, bool mean, FaultReporter faults) {
  if (blockIdx.x == 0)
    for (int64_t s = threadIdx.x; s < count; s += kThreads) span_holds(faults, spans, s, total);
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= total) return;
  float sum = 0;
  for (int64_t s = 0; s < count; s++) {
    const int32_t begin = spans[2 * s], end = spans[2 * s + 1];
    if (t < begin || t >= end) continue;
    const double given = weights ? static_cast<double>(dy[s]) * weights[s] : dy[s];
    sum += static_cast<float>(mean ? given / static_cast<double>(end - begin) : given);
  }
  dx[t] = sum;
}

void span_spread(Stream& stream, const Args& args) {
  const auto [dy, spans, weights, dx] = args.tensors<4>();
  const int64_t total = dx[0];
  const int64_t blocks = total == 0 && spans[0] > 0 ? 1 : (total + kThreads - 1) / kThreads;
  stream.launch(span_spread_kernel, blocks, kThreads, 0, dy.as<float>(), spans.as<int32_t>(),
                weights.as<float>(), dx.as<float>(), spans[0], total, args.i(1) != 0, stream.faults);
}

}  // namespace

void register_advantage(KernelTable& table) {
  table.set("gae", gae);
  table.set("whiten", whiten);
  table.set("group_advantages", group_advantages);
  table.set("span_sum", span_sum);
  table.set("span_spread", span_spread);
}

}  // namespace steptrain::cuda
