// lora_grads: da[r,K] += vᵀ·drop(x), db[N,r] += scale·dyᵀ·u, in one region: all threads transpose u and v,
// then each task multiplies them by a panel of x or of dy, over tokens in fixed chunks, in order. Each
// element has one f32 accumulator, so the result does not depend on the thread count.
#include "cpu/gemm/lora.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

Dropout dropout_of(const char* op, int64_t tokens, const TensorView& lora_a, const TensorView& lora_b,
                   const TensorView& row_ids, const TensorView& positions, double rate, int64_t key0,
                   int64_t key1) {
  if (static_cast<bool>(lora_a) != static_cast<bool>(lora_b))
    throw Error("E_SHAPE", format("%s: lora_a and lora_b come together; only %s was given", op,
                                  lora_a ? "lora_a" : "lora_b"));
  if (!(rate >= 0 && rate < 1))
    throw Error("E_RANGE", format("%s: dropout must be at least 0 and below 1, got %g", op, rate));
  if (tokens > 0 && rate > 0 && lora_a && !(row_ids && positions))
    throw Error("E_SHAPE",
                format("%s: dropout %g needs row_ids and positions, which key its mask", op, rate));
  Dropout dropout;
  if (tokens > 0 && rate > 0 && lora_a) {
    dropout = {row_ids.as<const int32_t>(), positions.as<const int32_t>(), static_cast<float>(rate),
               static_cast<uint32_t>(key0), static_cast<uint32_t>(key1)};
  }
  return dropout;
}

namespace {

constexpr int64_t kPairTokens = 512;  // a panel, at most 64 KiB, and as many dropout factors stay in L2

/// One panel of a gradient: c[rank, kPanel] = left[rank, tokens]·panel. `fill` packs the panel, a chunk of
/// tokens at a time.
template <typename T, typename Fill>
void reduce(const T* left, int64_t stride, int64_t rank, int64_t tokens, T* panel, float* c,
            const Fill& fill) {
  for (int64_t first = 0; first < tokens; first += kPairTokens) {
    const int64_t count = std::min(kPairTokens, tokens - first);
    fill(first, count);
    each_tile<T>(0, rank, [&](int64_t i, int height) {
      gemm_tile<T>(height, left + i * stride + first, stride, panel, count, c + i * kTileStride, first > 0);
    });
  }
}

template <typename T, typename X>
void gradients(Stream& stream, const Args& args) {
  const auto [x, dy, u, v, da, db, row_ids, positions] = args.tensors<8>();
  const Dropout dropout =
      dropout_of("lora_grads", x[0], u, v, row_ids, positions, args.d(1), args.i(2), args.i(3));
  const int64_t tokens = x[0], rank = u[1], stride = row_stride<T>(tokens);
  const float scale = args.f(0);
  const int64_t threads = stream.pool.threads();
  T* const ut = stream.scratch.take<T>(rank * stride);
  T* const vt = stream.scratch.take<T>(rank * stride);
  T* const panels_ = stream.scratch.take<T>(threads * panel_stride<T>(kPairTokens));
  float* const sums = stream.scratch.take<float>(threads * rank * kTileStride);
  float* const factors_ = dropout ? stream.scratch.take<float>(threads * kPairTokens * kPanel) : nullptr;
  const int64_t chunks = (tokens + kPairTokens - 1) / kPairTokens, of_x = panels(x[1]), of_dy = panels(dy[1]);

  stream.pool.region([&](Worker& worker) {
    for (int64_t task; (task = worker.next(0)) < 2 * chunks;) {
      const int64_t first = task / 2 * kPairTokens, count = std::min(kPairTokens, tokens - first);
      const float* from = (task % 2 ? v : u).template as<const float>() + first * rank;
      transpose_rows<T>(from, rank, count, rank, (task % 2 ? vt : ut) + first, stride);
    }
    worker.barrier();
    T* const panel = panels_ + worker.index * panel_stride<T>(kPairTokens);
    float* const c = sums + worker.index * rank * kTileStride;
    for (int64_t task; tokens > 0 && (task = worker.next(1)) < of_x + of_dy;) {
      if (task < of_x) {
        const int64_t k = task * kPanel, columns = std::min(kPanel, x[1] - k);
        float* factors = dropout ? factors_ + worker.index * kPairTokens * kPanel : nullptr;
        reduce(vt, stride, rank, tokens, panel, c, [&](int64_t first, int64_t count) {
          const X* from = x.template as<const X>() + first * x[1] + k;
          if (!dropout) return pack_columns<T>(from, x[1], columns, count, panel);
          dropout.window(first, count, k, factors);
          for (int64_t t = 0; t < count; t++) {
            float* row = factors + t * kPanel;
            each_vector(columns, [&](int64_t j, auto... n) {
              store(row + j, load(row + j, n...) * load(from + t * x[1] + j, n...), n...);
            });
          }
          pack_columns<T>(factors, kPanel, columns, count, panel);
        });
        for (int64_t i = 0; i < rank; i++) {
          float* out = da.template as<float>() + i * x[1] + k;
          for (int64_t j = 0; j < columns; j++) out[j] += c[i * kTileStride + j];
        }
      } else {
        const int64_t n = (task - of_x) * kPanel, columns = std::min(kPanel, dy[1] - n);
        reduce(ut, stride, rank, tokens, panel, c, [&](int64_t first, int64_t count) {
          pack_columns<T>(dy.template as<const T>() + first * dy[1] + n, dy[1], columns, count, panel);
        });
        for (int64_t j = 0; j < columns; j++) {
          float* out = db.template as<float>() + (n + j) * rank;
          for (int64_t i = 0; i < rank; i++) out[i] += scale * c[i * kTileStride + j];
        }
      }
    }
  });
}

void lora_grads(Stream& stream, const Args& args) {
  const bool narrow_x = args.tensor[0].dtype == DType::bf16;
  auto run = args.tensor[1].dtype == DType::bf16
                 ? (narrow_x ? gradients<bf16, bf16> : gradients<bf16, float>)
                 : (narrow_x ? gradients<float, bf16> : gradients<float, float>);
  run(stream, args);
}

}  // namespace

void register_lora_grads(KernelTable& table) {
  table.set("lora_grads", lora_grads);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
