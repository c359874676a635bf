// Logits of chosen tokens: logits[r, c] = x[r]·W[tokens[r, c]] / temperature, and their gradient: dx `=`,
// dw[tokens[r, c]] += dlogits·x[r] / temperature (tasks own columns, so every element is added in order of r,
// then c). head_expectation_backward, dx = dlogprobs·(W[target]/temperature - e), stands here because it
// reads single rows of W too. f32 arithmetic on stored values; row-invariant, deterministic.
#include "cpu/head/tile.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"
#include "cpu/weight_rows.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRows = 4;       // per task
constexpr int64_t kColumns = 128;  // of dw per task

void head_select(Stream& stream, const Args& args) {
  const auto [x, stored, tokens, logits] = args.tensors<4>();
  const TensorView w = valued(stored, x.dtype);
  check_temperature("head_select", args.d(0));
  check_indices("head_select", "tokens", tokens, w[0]);
  const int64_t R = x[0], H = x[1], C = tokens[1];
  const float inverse = 1 / args.f(0);
  float* rows = stream.scratch.take<float>(stream.pool.threads() * H);
  by_storage(x.dtype, [&](auto t) {
    using X = decltype(t);
    stream.pool.region([&](Worker& worker) {
      float* row = rows + worker.index * H;
      for (int64_t task; (task = worker.next()) < ceil_div(R, kRows);) {
        for (int64_t i = task * kRows * C; i < std::min(R, (task + 1) * kRows) * C; i++) {
          read_row(w, tokens.as<int32_t>()[i], row);
          const X* from = x.as<X>() + i / C * H;
          vf total = zero();
          each_vector(0, H, [&](int64_t k, int lanes) {
            total = fma(load_lanes(from + k, lanes), load_lanes(row + k, lanes), total);
          });
          logits.as<float>()[i] = sum(total) * inverse;
        }
      }
    });
  });
}

void head_select_backward(Stream& stream, const Args& args) {
  const auto [dlogits, x, stored, tokens, dw, dx] = args.tensors<6>();
  const TensorView w = valued(stored, x.dtype);
  check_temperature("head_select_backward", args.d(0));
  check_indices("head_select_backward", "tokens", tokens, w[0]);
  const int64_t R = x[0], H = x[1], C = tokens[1];
  const float inverse = 1 / args.f(0);
  float* buffers = stream.scratch.take<float>(stream.pool.threads() * 2 * H);
  const float* d = dlogits.as<float>();
  const int32_t* token = tokens.as<int32_t>();
  by_storage(x.dtype, [&](auto t) {
    using X = decltype(t);
    stream.pool.region([&](Worker& worker) {
      float *row = buffers + worker.index * 2 * H, *total = row + H;
      for (int64_t task; (task = worker.next(0)) < ceil_div(R, kRows);) {
        for (int64_t r = task * kRows; r < std::min(R, (task + 1) * kRows); r++) {
          std::fill(total, total + H, 0.0f);
          for (int64_t i = r * C; i < (r + 1) * C; i++) {
            read_row(w, token[i], row);
            const vf factor = set1(d[i] * inverse);
            each_vector(0, H, [&](int64_t k, int lanes) {
              store_lanes(total + k, fma(factor, load_lanes(row + k, lanes), load_lanes(total + k, lanes)),
                          lanes);
            });
          }
          each_vector(0, H, [&](int64_t k, int lanes) {
            store_lanes(dx.as<X>() + r * H + k, load_lanes(total + k, lanes), lanes);
          });
        }
      }
      if (!dw) return;
      for (int64_t task; (task = worker.next(1)) < ceil_div(H, kColumns);) {
        const int64_t begin = task * kColumns, end = std::min(H, begin + kColumns);
        for (int64_t i = 0; i < R * C; i++) {
          const vf factor = set1(d[i] * inverse);
          const X* from = x.as<X>() + i / C * H;
          float* to = dw.as<float>() + token[i] * H;
          each_vector(begin, end, [&](int64_t k, int lanes) {
            store_lanes(to + k, fma(factor, load_lanes(from + k, lanes), load_lanes(to + k, lanes)), lanes);
          });
        }
      }
    });
  });
}

void head_expectation_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, stored, targets, expectation, dx] = args.tensors<5>();
  const TensorView w = valued(stored, dx.dtype);
  check_temperature("head_expectation_backward", args.d(0));
  check_indices("head_expectation_backward", "targets", targets, w[0]);
  const int64_t R = dx[0], H = dx[1];
  const vf inverse = set1(1 / args.f(0));
  float* buffers = stream.scratch.take<float>(stream.pool.threads() * H);
  by_storage(dx.dtype, [&](auto t) {
    using X = decltype(t);
    stream.pool.region([&](Worker& worker) {
      float* row = buffers + worker.index * H;
      for (int64_t task; (task = worker.next()) < ceil_div(R, kRows);) {
        for (int64_t r = task * kRows; r < std::min(R, (task + 1) * kRows); r++) {
          read_row(w, targets.as<int32_t>()[r], row);
          const vf d = set1(dlogprobs.as<float>()[r]);
          const float* e = expectation.as<float>() + r * H;
          each_vector(0, H, [&](int64_t k, int lanes) {
            const vf gap = fma(load_lanes(row + k, lanes), inverse, zero() - load_lanes(e + k, lanes));
            store_lanes(dx.as<X>() + r * H + k, d * gap, lanes);
          });
        }
      }
    });
  });
}

}  // namespace

void register_head_select(KernelTable& table) {
  table.set("head_select", head_select);
  table.set("head_select_backward", head_select_backward);
  table.set("head_expectation_backward", head_expectation_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
