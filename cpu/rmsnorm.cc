// RMSNorm over rows x[T,H] with the residual add in front fused, and its backward.
//   sum = x + residual, rounded to storage: the norm reads the rounded sum, as transformers does
//   y = sum·rstd·weight, rstd = 1/sqrt(mean(sum²) + eps)
// Overwritten: y, sum, rstd, dx; accumulated into: dweight f32[H]. Statistics and arithmetic in f32, y and dx are rounded
// once. A row's bits depend on that row alone.
#include "cpu/norm.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

void rmsnorm(Stream& stream, const Args& args) {
  const auto [x, weight, residual, y, sum, rstd] = args.tensors<6>();
  const int64_t size = x[1];
  const float eps = args.f(0);
  by_storage(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* const spare = sum_scratch<T>(stream, residual, sum, size);
    by_storage(weight.dtype, [&](auto weight_tag) {
      using W = decltype(weight_tag);
      by_rows(stream, x[0], kNormRows, [&](int64_t first, int64_t last, int worker) {
        for (int64_t t = first; t < last; t++) {
          T* into = sum ? sum.as<T>() + t * size : spare ? spare + worker * size : nullptr;
          const T* total = add_residual(x.as<T>() + t * size,
                                        residual ? residual.as<T>() + t * size : nullptr, into, size);
          rstd.as<float>()[t] = rmsnorm_row(total, weight.as<W>(), y.as<T>() + t * size, size, eps);
        }
      });
    });
  });
}

void rmsnorm_backward(Stream& stream, const Args& args) {
  const auto [dy, sum, weight, rstd, dsum, dweight, dx] = args.tensors<7>();
  const int64_t rows = dy[0], size = dy[1], chunks = (rows + kNormChunk - 1) / kNormChunk;
  float* const partial = dweight ? stream.scratch.take<float>(chunks * size) : nullptr;
  by_storage(dy.dtype, [&](auto tag) {
    using T = decltype(tag);
    by_storage(weight.dtype, [&](auto weight_tag) {
      using W = decltype(weight_tag);
      const W* w = weight.as<W>();
      // dx = rstd·(g - x̂·mean(g·x̂)) with g = dy·weight, x̂ = sum·rstd.
      const auto row = [&](int64_t t, float* dw) {
        const T *s = sum.as<T>() + t * size, *d = dy.as<T>() + t * size;
        const T* passed = dsum ? dsum.as<T>() + t * size : nullptr;
        const vf scale = set1(rstd.as<float>()[t]);
        const float dot = row_sum(size, [&](int64_t h, int n) {
          return load_at(d, h, n) * load_at(w, h, n) * (load_at(s, h, n) * scale);
        });
        const vf mean = set1(dot / static_cast<float>(size));
        by_vector(size, [&](int64_t h, int n) {
          const vf normal = load_at(s, h, n) * scale, gradient = load_at(d, h, n);
          if (dw) store_at(dw, h, fma(gradient, normal, load_at(dw, h, n)), n);
          const vf out = (gradient * load_at(w, h, n) - normal * mean) * scale;
          store_at(dx.as<T>() + t * size, h, passed ? out + load_at(passed, h, n) : out, n);
        });
      };
      stream.pool.region([&](Worker& worker) {
        for (int64_t chunk; (chunk = worker.next()) < chunks;) {
          float* dw = partial ? partial + chunk * size : nullptr;
          if (dw) std::fill(dw, dw + size, 0.0f);
          for (int64_t t = chunk * kNormChunk; t < std::min(rows, (chunk + 1) * kNormChunk); t++) row(t, dw);
        }
        if (!partial) return;
        worker.barrier();
        for (int64_t first; (first = worker.next(1) * kColumns) < size;)
          add_partials(dweight.as<float>(), partial, chunks, size, first, std::min(size, first + kColumns));
      });
    });
  });
}

}  // namespace

void register_rmsnorm(KernelTable& table) {
  table.set("rmsnorm", rmsnorm);
  table.set("rmsnorm_backward", rmsnorm_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
