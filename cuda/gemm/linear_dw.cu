// linear_dw: dw += dyᵀ·x, db += column sums of dy. A launch each.
#include "cuda/gemm/lora.h"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kColumns = 32;  // per block of the bias gradient
constexpr int kLanes = 8;     // threads that share a column

/// db[n] += Σ_t dy[t][n]: lane i adds tokens i, i + kLanes, … in order, then the lanes are added in order.
template <typename T>
__global__ void column_sums_kernel(float* db, const T* dy, int64_t tokens, int64_t features) {
  __shared__ float sums[kLanes][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns,
            lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t n = int64_t{blockIdx.x} * kColumns + column;
  float sum = 0;
  if (n < features)
    for (int64_t t = lane; t < tokens; t += kLanes) sum += to_float(dy[t * features + n]);
  sums[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || n >= features) return;
  float total = sums[0][column];
#pragma unroll
  for (int i = 1; i < kLanes; i++) total += sums[i][column];
  db[n] += total;
}

void linear_dw(Stream& stream, const Args& args) {
  const auto [x, dy, dw, db] = args.tensors<4>();
  if (dw) {
    Product p;
    p.rows = dy[1], p.columns = x[1], p.depth = x[0];
    p.a = factor(dy), p.b = factor(x);
    set_output(p, dw.data, DType::f32, true);
    multiply(stream, x.dtype, Layout::weight, p);
  }
  if (db) {
    by_storage(dy.dtype, [&](auto t) {
      using T = decltype(t);
      stream.launch(column_sums_kernel<T>, (dy[1] + kColumns - 1) / kColumns, kColumns * kLanes, 0,
                    db.as<float>(), dy.as<T>(), dy[0], dy[1]);
    });
  }
}

}  // namespace

void register_linear_dw(KernelTable& table) {
  table.set("linear_dw", linear_dw);
}

}  // namespace steptrain::cuda
