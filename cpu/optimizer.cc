// AdamW over one flat buffer of parameters, in one region: global gradient norm, barrier, update.
//
//   norm = |grad_scale| · sqrt(Σ grads²): f64 sums of fixed chunks, added in index order, so that the number
//   of threads changes nothing. factor = min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
//   g = grads · grad_scale · factor; exp_avg = β1·exp_avg + (1-β1)·g; exp_avg_sq = β2·exp_avg_sq + (1-β2)·g²;
//   params = params - lr·decay·params - lr/(1-β1^step) · exp_avg / (sqrt(exp_avg_sq / (1-β2^step)) + eps)
//
// as torch.optim.AdamW (Loshchilov and Hutter 2019), elementwise in f32. Parameters and moments are written
// in place, grads are only read; a non-finite norm leaves all of them as they are.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/runtime/families.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kUpdateChunk = 32768;

struct Update {
  float* params;
  const float* grads;
  float* exp_avg;
  float* exp_avg_sq;
  float keep1, add1, keep2, add2;  // β1, 1 - β1, β2, 1 - β2
  float eps, correction;           // correction: 1 / sqrt(1 - β2^step)
};

double sum_of_squares(const float* x, int64_t n) {
  constexpr int kWide = 16;
  double sums[kWide] = {};
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    for (int l = 0; l < kWide; l++) {
      const double v = x[i + l];
      sums[l] += v * v;
    }
  }
  for (int l = 0; i < n; i++, l++) sums[l] += static_cast<double>(x[i]) * x[i];
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

/// Elements [begin, end) of one segment. The tail goes through the same operations as whole vectors.
void update(const Update& u, int64_t begin, int64_t end, float factor, float decay, float rate) {
  const vf eps = set1(u.eps), correction = set1(u.correction);
  const vf keep1 = set1(u.keep1), add1 = set1(u.add1), keep2 = set1(u.keep2), add2 = set1(u.add2);
  const vf minus_decay = set1(-decay), minus_rate = set1(-rate), scale = set1(factor);
  const auto step = [&](vf p, vf g, vf& m, vf& v) {
    g = g * scale;
    m = fma(keep1, m, add1 * g);
    v = fma(keep2, v, add2 * g * g);
    p = fma(minus_decay, p, p);
    return fma(minus_rate, m / fma(sqrt(v), correction, eps), p);
  };
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    vf m = load(u.exp_avg + i), v = load(u.exp_avg_sq + i);
    store(u.params + i, step(load(u.params + i), load(u.grads + i), m, v));
    store(u.exp_avg + i, m);
    store(u.exp_avg_sq + i, v);
  }
  if (const int n = static_cast<int>(end - i); n > 0) {
    vf m = load(u.exp_avg + i, n), v = load(u.exp_avg_sq + i, n);
    store(u.params + i, step(load(u.params + i, n), load(u.grads + i, n), m, v), n);
    store(u.exp_avg + i, m, n);
    store(u.exp_avg_sq + i, v, n);
  }
}

void adamw(Stream& stream, const Args& args) {
  const auto [params, grads, exp_avg, exp_avg_sq, sizes, weight_decay, lr_scale, stats] = args.tensors<8>();
  const double lr = args.d(0), beta1 = args.d(1), beta2 = args.d(2), max_norm = args.d(5),
               grad_scale = args.d(6);
  const int64_t step = args.i(4);
  if (step < 1)
    throw Error("E_RANGE", format("adamw: step is %lld, expected 1 or more", static_cast<long long>(step)));

  const int64_t total = params.numel(), segments = sizes[0];
  int64_t* starts = stream.scratch.take<int64_t>(segments + 1);
  starts[0] = 0;
  for (int64_t s = 0; s < segments; s++) {
    const int32_t size = sizes.as<int32_t>()[s];
    if (size < 0)
      throw Error("E_RANGE", format("adamw: sizes[%lld] is %d, below 0", static_cast<long long>(s), size));
    starts[s + 1] = starts[s] + size;
  }
  if (starts[segments] != total) {
    throw Error("E_RANGE", format("adamw: sizes sum to %lld, expected the %lld parameters",
                                  static_cast<long long>(starts[segments]), static_cast<long long>(total)));
  }

  const Update u{params.as<float>(),
                 grads.as<float>(),
                 exp_avg.as<float>(),
                 exp_avg_sq.as<float>(),
                 static_cast<float>(beta1),
                 static_cast<float>(1 - beta1),
                 static_cast<float>(beta2),
                 static_cast<float>(1 - beta2),
                 args.f(3),
                 static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(step))))};
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const int64_t chunks = (total + kUpdateChunk - 1) / kUpdateChunk;
  double* squares = stream.scratch.take<double>(chunks);

  stream.pool.region([&](Worker& worker) {
    for (int64_t c; (c = worker.next(0)) < chunks;)
      squares[c] =
          sum_of_squares(u.grads + c * kUpdateChunk, std::min(kUpdateChunk, total - c * kUpdateChunk));
    worker.barrier();

    // Every thread adds the few partial sums itself, which saves a second barrier.
    double sum = 0;
    for (int64_t c = 0; c < chunks; c++) sum += squares[c];
    const double norm = std::abs(grad_scale) * std::sqrt(sum);
    const bool finite = std::isfinite(norm);
    const double clip = !finite ? 0 : max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
    if (worker.index == 0) {
      stats.as<float>()[0] = static_cast<float>(norm);
      stats.as<float>()[1] = static_cast<float>(clip);
      stats.as<float>()[2] = finite ? 0.0f : 1.0f;
    }
    if (!finite) return;

    const float factor = static_cast<float>(grad_scale * clip);
    for (int64_t c; (c = worker.next(1)) < chunks;) {
      int64_t begin = c * kUpdateChunk;
      const int64_t chunk_end = std::min(total, begin + kUpdateChunk);
      int64_t s = std::upper_bound(starts, starts + segments + 1, begin) - starts - 1;
      for (; begin < chunk_end; s++) {
        const int64_t end = std::min(chunk_end, starts[s + 1]);
        const double rate = lr * (lr_scale ? lr_scale.as<float>()[s] : 1.0f);
        update(u, begin, end, factor, static_cast<float>(rate * weight_decay.as<float>()[s]),
               static_cast<float>(rate / correction1));
        begin = end;
      }
    }
  });
}

void square_sums(Stream& stream, const Args& args) {
  const auto [x, sums] = args.tensors<2>();
  const int64_t total = x.numel(), chunks = (total + kUpdateChunk - 1) / kUpdateChunk;
  if (sums[0] != chunks)
    throw Error("E_SHAPE", format("square_sums: %lld sums for %lld chunks", static_cast<long long>(sums[0]),
                                  static_cast<long long>(chunks)));
  stream.pool.run(chunks, [&](int64_t c) {
    const double sum =
        sum_of_squares(x.as<float>() + c * kUpdateChunk, std::min(kUpdateChunk, total - c * kUpdateChunk));
    std::memcpy(sums.as<int32_t>() + 2 * c, &sum, sizeof sum);
  });
}

}  // namespace

void register_optimizer(KernelTable& table) {
  table.set("adamw", adamw);
  table.set("square_sums", square_sums);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
