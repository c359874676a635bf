// LayerNorm over rows x[T,H] with the residual add in front fused, and its backward.
//   sum = x + residual, rounded to storage
//   y = (sum - mean)·rstd·weight + bias, rstd = 1/sqrt(mean((sum - mean)²) + eps)
// Overwritten: y, sum, mean, rstd, dx; accumulated into: dweight, dbias f32[H]. Arithmetic and rounding are
// those of cpu/rmsnorm.cc.
#include "cpu/norm.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T, typename W>
void layernorm_row(const T* x, const W* weight, const W* bias, T* y, float& mean, float& rstd, int64_t size,
                   float eps) {
  mean = row_sum(size, [&](int64_t h, int n) { return load_at(x, h, n); }) / static_cast<float>(size);
  const vf center = set1(mean);
  const float squares = row_sum(size, [&](int64_t h, int n) {
    const vf a = load_at(x, h, n) - center;
    // Lanes past the row hold -mean here.
    return n == kLanes ? a * a : first_lanes(a * a, n);
  });
  rstd = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
  const vf scale = set1(rstd);
  by_vector(size, [&](int64_t h, int n) {
    const vf a = (load_at(x, h, n) - center) * scale * load_at(weight, h, n);
    store_at(y, h, bias ? a + load_at(bias, h, n) : a, n);
  });
}

void layernorm(Stream& stream, const Args& args) {
  const auto [x, weight, bias, residual, y, sum, mean, rstd] = args.tensors<8>();
  const int64_t size = x[1];
  const float eps = args.f(0);
  if (bias && bias.dtype != weight.dtype)
    throw Error("E_DTYPE", format("layernorm: bias must be %s like weight, got %s", name_of(weight.dtype),
                                  name_of(bias.dtype)));
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
          layernorm_row(total, weight.as<W>(), bias ? bias.as<W>() : nullptr, y.as<T>() + t * size,
                        mean.as<float>()[t], rstd.as<float>()[t], size, eps);
        }
      });
    });
  });
}

void layernorm_backward(Stream& stream, const Args& args) {
  const auto [dy, sum, weight, mean, rstd, dsum, dweight, dbias, dx] = args.tensors<9>();
  const int64_t rows = dy[0], size = dy[1], chunks = (rows + kNormChunk - 1) / kNormChunk;
  float* const weights = dweight ? stream.scratch.take<float>(chunks * size) : nullptr;
  float* const biases = dbias ? stream.scratch.take<float>(chunks * size) : nullptr;
  by_storage(dy.dtype, [&](auto tag) {
    using T = decltype(tag);
    by_storage(weight.dtype, [&](auto weight_tag) {
      using W = decltype(weight_tag);
      const W* w = weight.as<W>();
      // dx = rstd·(g - mean(g) - x̂·mean(g·x̂)) with g = dy·weight, x̂ = (sum - mean)·rstd.
      const auto row = [&](int64_t t, float* dw, float* db) {
        const T *s = sum.as<T>() + t * size, *d = dy.as<T>() + t * size;
        const T* passed = dsum ? dsum.as<T>() + t * size : nullptr;
        const vf scale = set1(rstd.as<float>()[t]), center = set1(mean.as<float>()[t]);
        const float total =
            row_sum(size, [&](int64_t h, int n) { return load_at(d, h, n) * load_at(w, h, n); });
        const float dot = row_sum(size, [&](int64_t h, int n) {
          return load_at(d, h, n) * load_at(w, h, n) * ((load_at(s, h, n) - center) * scale);
        });
        const vf mean_g = set1(total / static_cast<float>(size));
        const vf mean_gx = set1(dot / static_cast<float>(size));
        by_vector(size, [&](int64_t h, int n) {
          const vf normal = (load_at(s, h, n) - center) * scale, gradient = load_at(d, h, n);
          if (dw) store_at(dw, h, fma(gradient, normal, load_at(dw, h, n)), n);
          if (db) store_at(db, h, gradient + load_at(db, h, n), n);
          const vf out = (gradient * load_at(w, h, n) - mean_g - normal * mean_gx) * scale;
          store_at(dx.as<T>() + t * size, h, passed ? out + load_at(passed, h, n) : out, n);
        });
      };
      stream.pool.region([&](Worker& worker) {
        for (int64_t chunk; (chunk = worker.next()) < chunks;) {
          float* dw = weights ? weights + chunk * size : nullptr;
          float* db = biases ? biases + chunk * size : nullptr;
          if (dw) std::fill(dw, dw + size, 0.0f);
          if (db) std::fill(db, db + size, 0.0f);
          for (int64_t t = chunk * kNormChunk; t < std::min(rows, (chunk + 1) * kNormChunk); t++)
            row(t, dw, db);
        }
        if (!weights && !biases) return;
        worker.barrier();
        for (int64_t first; (first = worker.next(1) * kColumns) < size;) {
          const int64_t last = std::min(size, first + kColumns);
          if (weights) add_partials(dweight.as<float>(), weights, chunks, size, first, last);
          if (biases) add_partials(dbias.as<float>(), biases, chunks, size, first, last);
        }
      });
    });
  });
}

}  // namespace

void register_layernorm(KernelTable& table) {
  table.set("layernorm", layernorm);
  table.set("layernorm_backward", layernorm_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
