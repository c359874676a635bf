// embedding y[t] = weight[ids[t]] (`=`, any mix of f32 and bf16, row-major, packed or quantised weight), and its
// gradient dweight[ids[t]] += dy[t] in f32: tasks own columns, so every element is added in order of t.
// Deterministic.
#include "cpu/elementwise.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"
#include "cpu/weight_rows.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kTokens = 8;     // per task of the gather
constexpr int64_t kColumns = 128;  // per task of the scatter

void embedding(Stream& stream, const Args& args) {
  const auto [ids, stored, y] = args.tensors<3>();
  const TensorView weight = valued(stored, y.dtype);
  check_indices("embedding", "ids", ids, weight[0]);
  const int64_t tokens = ids[0], width = weight[1];
  by_storage(y.dtype, [&](auto t) {
    using T = decltype(t);
    stream.pool.run((tokens + kTokens - 1) / kTokens, [&](int64_t task) {
      for (int64_t i = task * kTokens; i < std::min(tokens, (task + 1) * kTokens); i++)
        read_row(weight, ids.as<int32_t>()[i], y.as<T>() + i * width);
    });
  });
}

void embedding_backward(Stream& stream, const Args& args) {
  const auto [dy, ids, dweight] = args.tensors<3>();
  check_indices("embedding_backward", "ids", ids, dweight[0]);
  const int64_t tokens = dy[0], width = dy[1];
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    stream.pool.run((width + kColumns - 1) / kColumns, [&](int64_t task) {
      const int64_t begin = task * kColumns, end = std::min(width, begin + kColumns);
      for (int64_t i = 0; i < tokens; i++) {
        float* to = dweight.as<float>() + ids.as<int32_t>()[i] * width;
        const T* from = dy.as<T>() + i * width;
        each_vector(begin, end, [&](int64_t k, int lanes) {
          store_lanes(to + k, load_lanes(to + k, lanes) + load_lanes(from + k, lanes), lanes);
        });
      }
    });
  });
}

}  // namespace

void register_embedding(KernelTable& table) {
  table.set("embedding", embedding);
  table.set("embedding_backward", embedding_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
