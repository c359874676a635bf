// AdamW over one flat buffer of parameters, in two launches: one squares the gradient and checks the
// segments, the other takes the norm and updates.
//
//   norm = |grad_scale| · sqrt(Σ grads²), f64 sums whose order depends on the number of parameters alone.
//   factor = min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
//   g = grads · grad_scale · factor; exp_avg = β1·exp_avg + (1-β1)·g; exp_avg_sq = β2·exp_avg_sq + (1-β2)·g²;
//   params = params - lr·decay·params - lr/(1-β1^step) · exp_avg / (sqrt(exp_avg_sq / (1-β2^step)) + eps)
//
// as torch.optim.AdamW (Loshchilov and Hutter 2019), elementwise in f32 with the operations of the CPU's
// kernel. Parameters and moments are written in place, grads are only read; a non-finite norm leaves all of
// them unchanged. Every block adds the partial sums (at most kMaxPartials) itself, which saves a launch.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kUpdateThreads = 256;
constexpr int64_t kGrain = int64_t{kUpdateThreads} * kEight;  // parameters of a block at a time
constexpr int64_t kMaxPartials = 1024;
constexpr int kBlocksPerProcessor = 4;
constexpr int kSizes = 4;  // of the op's inputs: `sizes`

struct Update {
  float *params, *exp_avg, *exp_avg_sq;
  const float* grads;
  const int64_t* starts;      // [segments + 1], where each segment begins
  const float* weight_decay;  // [segments]
  const float* lr_scale;      // [segments], or null
  const double* partials;     // sums of squares
  const int32_t* valid;
  float* stats;
  int64_t total;
  int32_t segments, partial_count;
  float keep1, add1, keep2, add2;  // β1, 1 - β1, β2, 1 - β2
  float eps, correction;           // correction: 1 / sqrt(1 - β2^step)
  double lr, correction1, max_norm, grad_scale;
  bool wide;
};

/// The last block adds up the sizes of the segments;
/// every other block adds the squares of its groups of eight.
__global__ void __launch_bounds__(kUpdateThreads)
    prepare_kernel(const float* grads, int64_t total, double* partials, const int32_t* sizes,
                   int32_t segments, int64_t* starts, int32_t* valid, FaultReporter faults, bool wide) {
  if (blockIdx.x + 1 < gridDim.x) {
    double squares = 0;
    const int64_t stride = (int64_t{gridDim.x} - 1) * kGrain;
    for (int64_t at = int64_t{blockIdx.x} * kGrain + int64_t{threadIdx.x} * kEight; at < total;
         at += stride) {
      float g[kEight];
      load8(grads + at, in_group(at, total), wide, g);
#pragma unroll
      for (int i = 0; i < kEight; i++)
        squares = fma(static_cast<double>(g[i]), static_cast<double>(g[i]), squares);
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) partials[blockIdx.x] = squares;
    return;
  }
  if (threadIdx.x >= kWarp) return;
  const int lane = static_cast<int>(threadIdx.x);
  int64_t before = 0;
  bool holds = true;
  for (int32_t base = 0; base < segments; base += kWarp) {
    const int32_t segment = base + lane;
    int64_t size = segment < segments ? sizes[segment] : 0;
    if (size < 0) {
      report(faults, FaultKind::negative, kSizes, segment, size, 0);
      holds = false;
      size = 0;
    }
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int64_t lower = __shfl_up_sync(0xffffffffu, size, distance);
      if (lane >= distance) size += lower;
    }
    if (segment < segments) starts[segment + 1] = before + size;
    before += __shfl_sync(0xffffffffu, size, kWarp - 1);
  }
  holds = __all_sync(0xffffffffu, holds);
  if (lane != 0) return;
  starts[0] = 0;
  if (holds && before != total) {
    report(faults, FaultKind::sum, kSizes, 0, before, total);
    holds = false;
  }
  *valid = holds;
}

__global__ void __launch_bounds__(kUpdateThreads) update_kernel(Update u) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < u.partial_count; i += kUpdateThreads) sum += u.partials[i];
  sum = block_sum(sum);
  const double norm = fabs(u.grad_scale) * sqrt(sum);
  const bool finite = isfinite(norm);
  const double clip = !finite ? 0.0 : u.max_norm > 0 ? fmin(1.0, u.max_norm / (norm + 1e-6)) : 1.0;
  if (!*u.valid) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    u.stats[0] = static_cast<float>(norm);
    u.stats[1] = static_cast<float>(clip);
    u.stats[2] = finite ? 0.0f : 1.0f;
  }
  if (!finite) return;

  const float factor = static_cast<float>(u.grad_scale * clip);
  for (int64_t begin = int64_t{blockIdx.x} * kGrain; begin < u.total; begin += int64_t{gridDim.x} * kGrain) {
    // The last segment that starts at or before the block's first parameter; empty ones are skipped.
    int32_t segment = 0;
    for (int32_t end = u.segments; end - segment > 1;) {
      const int32_t middle = segment + (end - segment) / 2;
      (u.starts[middle] <= begin ? segment : end) = middle;
    }
    const int64_t at = begin + int64_t{threadIdx.x} * kEight;
    if (at >= u.total) return;
    const int count = in_group(at, u.total);
    float p[kEight], g[kEight], m[kEight], v[kEight];
    load8(u.params + at, count, u.wide, p);
    load8(u.grads + at, count, u.wide, g);
    load8(u.exp_avg + at, count, u.wide, m);
    load8(u.exp_avg_sq + at, count, u.wide, v);
    int64_t segment_end = 0;  // end of the segment whose rates are loaded
    float decay = 0, rate = 0;
#pragma unroll
    for (int i = 0; i < kEight; i++) {
      if (at + i >= segment_end && i < count) {
        while (at + i >= u.starts[segment + 1]) segment++;
        segment_end = u.starts[segment + 1];
        const double scaled = u.lr * static_cast<double>(u.lr_scale ? u.lr_scale[segment] : 1.0f);
        decay = static_cast<float>(scaled * static_cast<double>(u.weight_decay[segment]));
        rate = static_cast<float>(scaled / u.correction1);
      }
      const float gradient = g[i] * factor;
      m[i] = fmaf(u.keep1, m[i], u.add1 * gradient);
      v[i] = fmaf(u.keep2, v[i], u.add2 * gradient * gradient);
      p[i] = fmaf(-decay, p[i], p[i]);
      p[i] = fmaf(-rate, m[i] / fmaf(sqrtf(v[i]), u.correction, u.eps), p[i]);
    }
    store8(u.params + at, count, u.wide, p);
    store8(u.exp_avg + at, count, u.wide, m);
    store8(u.exp_avg_sq + at, count, u.wide, v);
  }
}

void adamw(Stream& stream, const Args& args) {
  const auto [params, grads, exp_avg, exp_avg_sq, sizes, weight_decay, lr_scale, stats] = args.tensors<8>();
  const double beta1 = args.d(1), beta2 = args.d(2);
  const int64_t step = args.i(4);
  if (step < 1)
    throw Error("E_RANGE", format("adamw: step is %lld, expected 1 or more", static_cast<long long>(step)));

  const int64_t total = params.numel(), segments = sizes[0];
  const int64_t grains = std::max<int64_t>(1, (total + kGrain - 1) / kGrain);
  const int64_t partial_count = std::min(kMaxPartials, grains);
  int64_t* starts = stream.scratch.take<int64_t>(segments + 1);
  double* partials = stream.scratch.take<double>(partial_count);
  int32_t* valid = stream.scratch.take<int32_t>(1);
  const bool wide = all_wide({params, grads, exp_avg, exp_avg_sq});

  stream.launch(prepare_kernel, partial_count + 1, kUpdateThreads, 0, grads.as<float>(), total, partials,
                sizes.as<int32_t>(), segments, starts, valid, stream.faults, wide);
  const Update u{
      params.as<float>(),
      exp_avg.as<float>(),
      exp_avg_sq.as<float>(),
      grads.as<float>(),
      starts,
      weight_decay.as<float>(),
      lr_scale.as<float>(),
      partials,
      valid,
      stats.as<float>(),
      total,
      static_cast<int32_t>(segments),
      static_cast<int32_t>(partial_count),
      static_cast<float>(beta1),
      static_cast<float>(1 - beta1),
      static_cast<float>(beta2),
      static_cast<float>(1 - beta2),
      args.f(3),
      static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(step)))),
      args.d(0),
      1 - std::pow(beta1, static_cast<double>(step)),
      args.d(5),
      args.d(6),
      wide,
  };
  stream.launch(update_kernel,
                std::min<int64_t>(grains, int64_t{kBlocksPerProcessor} * stream.hardware.multiprocessors),
                kUpdateThreads, 0, u);
}

constexpr int64_t kSquaresChunk = 32768;

/// A block adds the squares of a chunk.
__global__ void __launch_bounds__(kUpdateThreads)
    square_sums_kernel(const float* x, double* sums, int64_t total) {
  const int64_t begin = int64_t{blockIdx.x} * kSquaresChunk;
  const int64_t end = begin + kSquaresChunk < total ? begin + kSquaresChunk : total;
  double squares = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kUpdateThreads)
    squares = fma(static_cast<double>(x[i]), static_cast<double>(x[i]), squares);
  squares = block_sum(squares);
  if (threadIdx.x == 0) sums[blockIdx.x] = squares;
}

void square_sums(Stream& stream, const Args& args) {
  const auto [x, sums] = args.tensors<2>();
  const int64_t total = x.numel(), chunks = (total + kSquaresChunk - 1) / kSquaresChunk;
  if (sums[0] != chunks)
    throw Error("E_SHAPE", format("square_sums: %lld sums for %lld chunks", static_cast<long long>(sums[0]),
                                  static_cast<long long>(chunks)));
  stream.launch(square_sums_kernel, chunks, kUpdateThreads, 0, x.as<float>(),
                reinterpret_cast<double*>(sums.as<int32_t>()), total);
}

}  // namespace

void register_optimizer(KernelTable& table) {
  table.set("adamw", adamw);
  table.set("square_sums", square_sums);
}

}  // namespace steptrain::cuda
