// RMSNorm and LayerNorm over rows x[T,H], with the residual add in front fused, and their backwards.
//   sum = x + residual, rounded to storage: the norm reads the rounded sum, as transformers does
//   rmsnorm    y = sum·rstd·weight,                    rstd = 1/sqrt(mean(sum²) + eps)
//   layernorm  y = (sum - mean)·rstd·weight + bias,    rstd = 1/sqrt(mean((sum - mean)²) + eps)
// y, sum, mean, rstd and dx are =; dweight, dbias f32[H] are +=. Statistics and arithmetic in f32, y and dx
// are rounded once. A row's bits depend on that row alone. dweight and dbias are summed over chunks of kChunk
// rows, and the chunks added in index order, whatever the thread count.
#include <algorithm>

#include "cpu/runtime/families.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRows = 8;       // rows per task of a forward
constexpr int64_t kChunk = 64;     // rows whose dweight is one partial sum
constexpr int64_t kColumns = 512;  // columns per task that adds the partial sums
constexpr int kSums = 4;           // independent vector sums per row, added in index order

/// body(h, n) over vectors of [0, size): n is kLanes but for the last.
template <typename F>
inline void by_vector(int64_t size, F body) {
  int64_t h = 0;
  for (; h + kLanes <= size; h += kLanes) body(h, kLanes);
  if (h < size) body(h, static_cast<int>(size - h));
}
template <typename T>
inline vf load_at(const T* p, int64_t h, int n) {
  return n == kLanes ? load(p + h) : load(p + h, n);
}
template <typename T>
inline void store_at(T* p, int64_t h, vf x, int n) {
  n == kLanes ? store(p + h, x) : store(p + h, x, n);
}

/// Σ term(h, n) over vectors, in kSums interleaved sums. Lanes past the row must be zero.
template <typename F>
inline float row_sum(int64_t size, F term) {
  vf sums[kSums];
  for (vf& s : sums) s = zero();
  int64_t h = 0;
  for (; h + kSums * kLanes <= size; h += kSums * kLanes) {
    for (int i = 0; i < kSums; i++) sums[i] = sums[i] + term(h + i * kLanes, kLanes);
  }
  for (int i = 0; h < size; h += kLanes, i++)
    sums[i] = sums[i] + term(h, static_cast<int>(std::min<int64_t>(kLanes, size - h)));
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// Where the norm finds x + residual: x itself, or `into` after it has been filled.
template <typename T>
const T* add_residual(const T* x, const T* residual, T* into, int64_t size) {
  if (!into) return x;
  by_vector(size, [&](int64_t h, int n) {
    const vf a = load_at(x, h, n);
    store_at(into, h, residual ? a + load_at(residual, h, n) : a, n);
  });
  return into;
}

/// Rows that a worker may fill with x + residual where no `sum` is wanted.
template <typename T>
T* sum_scratch(Stream& stream, const TensorView& residual, const TensorView& sum, int64_t size) {
  return residual && !sum ? stream.scratch.take<T>(stream.pool.threads() * size) : nullptr;
}

/// body(first, last, worker) over blocks of `rows` rows.
template <typename F>
void by_rows(Stream& stream, int64_t total, int64_t rows, F body) {
  stream.pool.region([&](Worker& worker) {
    for (int64_t first; (first = worker.next() * rows) < total;)
      body(first, std::min(total, first + rows), worker.index);
  });
}

template <typename T, typename W>
void rmsnorm_row(const T* x, const W* weight, T* y, float& rstd, int64_t size, float eps) {
  const float squares = row_sum(size, [&](int64_t h, int n) {
    const vf a = load_at(x, h, n);
    return a * a;
  });
  rstd = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
  const vf scale = set1(rstd);
  by_vector(size,
            [&](int64_t h, int n) { store_at(y, h, load_at(x, h, n) * scale * load_at(weight, h, n), n); });
}

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

void rmsnorm(Stream& stream, const Args& args) {
  const auto [x, weight, residual, y, sum, rstd] = args.tensors<6>();
  const int64_t size = x[1];
  const float eps = args.f(0);
  by_storage(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* const spare = sum_scratch<T>(stream, residual, sum, size);
    by_storage(weight.dtype, [&](auto weight_tag) {
      using W = decltype(weight_tag);
      by_rows(stream, x[0], kRows, [&](int64_t first, int64_t last, int worker) {
        for (int64_t t = first; t < last; t++) {
          T* into = sum ? sum.as<T>() + t * size : spare ? spare + worker * size : nullptr;
          const T* total = add_residual(x.as<T>() + t * size,
                                        residual ? residual.as<T>() + t * size : nullptr, into, size);
          rmsnorm_row(total, weight.as<W>(), y.as<T>() + t * size, rstd.as<float>()[t], size, eps);
        }
      });
    });
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
      by_rows(stream, x[0], kRows, [&](int64_t first, int64_t last, int worker) {
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

/// target += Σ over chunks of partial[chunk], in index order, for columns [first, last).
void add_partials(float* target, const float* partial, int64_t chunks, int64_t size, int64_t first,
                  int64_t last) {
  for (int64_t chunk = 0; chunk < chunks; chunk++) {
    const float* row = partial + chunk * size;
    by_vector(last - first, [&](int64_t h, int n) {
      store_at(target, first + h, load_at(target, first + h, n) + load_at(row, first + h, n), n);
    });
  }
}

void rmsnorm_backward(Stream& stream, const Args& args) {
  const auto [dy, sum, weight, rstd, dsum, dweight, dx] = args.tensors<7>();
  const int64_t rows = dy[0], size = dy[1], chunks = (rows + kChunk - 1) / kChunk;
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
          for (int64_t t = chunk * kChunk; t < std::min(rows, (chunk + 1) * kChunk); t++) row(t, dw);
        }
        if (!partial) return;
        worker.barrier();
        for (int64_t first; (first = worker.next(1) * kColumns) < size;)
          add_partials(dweight.as<float>(), partial, chunks, size, first, std::min(size, first + kColumns));
      });
    });
  });
}

void layernorm_backward(Stream& stream, const Args& args) {
  const auto [dy, sum, weight, mean, rstd, dsum, dweight, dbias, dx] = args.tensors<9>();
  const int64_t rows = dy[0], size = dy[1], chunks = (rows + kChunk - 1) / kChunk;
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
          for (int64_t t = chunk * kChunk; t < std::min(rows, (chunk + 1) * kChunk); t++) row(t, dw, db);
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

void register_norm(KernelTable& table) {
  table.set("rmsnorm", rmsnorm);
  table.set("rmsnorm_backward", rmsnorm_backward);
  table.set("layernorm", layernorm);
  table.set("layernorm_backward", layernorm_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
