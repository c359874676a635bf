// Attention on the ordinary cores, for what the tensor cores do not take: f32 arithmetic on either storage,
// any head size that shared memory holds. A block of 128 threads takes 32 rows (queries, or keys for dk and
// dv) of one head and walks over tiles of 32 rows of the other side; four threads share a row and take every
// fourth column. Heads pass through shared memory in slices of kSlice elements; the outputs of the block stay
// there, in f32. The backward has one kernel for dq and one for dk and dv, as on tensor cores. A thread loads
// nine floats from shared memory for eight multiply-adds: these loads are the bound.
#include "core/error.h"
#include "cuda/attention/problem.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kPortableRows;
constexpr int kShare = 4;                 // threads of a row
constexpr int kColumns = kRows / kShare;  // per thread, in a tile or a slice
constexpr int kSlice = 32;
constexpr int kStride = kSlice + 1;
static_assert(kThreads == kRows * kShare && kSlice == kRows);

using Slice = float[kRows][kStride];

/// A tensor [T, heads, D] as rows of one head of one sequence.
template <typename T>
struct HeadRows {
  T* data;
  int64_t begin;
  int32_t length, head, heads, size;
  __device__ T* row(int32_t token) const { return data + ((begin + token) * heads + head) * size; }
};
template <typename T>
__device__ HeadRows<T> head_rows(const void* data, const AttentionTile& tile, int32_t head, int32_t heads,
                                 int32_t size) {
  return {static_cast<T*>(const_cast<void*>(data)), tile.begin, tile.length, head, heads, size};
}

/// slice[r][d] = rows[start + r][first + d], zeros beyond.
template <typename T>
__device__ void load_slice(Slice& slice, const HeadRows<T>& rows, int32_t start, int32_t first) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kSlice; i += kThreads) {
    const int r = i / kSlice, d = i % kSlice;
    slice[r][d] =
        start + r < rows.length && first + d < rows.size ? to_float(rows.row(start + r)[first + d]) : 0.0f;
  }
}

/// sums[i] += Σ_d a[row][d]·b[column i][d].
__device__ inline void multiply(float (&sums)[kColumns], const Slice& a, const Slice& b, int row, int share) {
#pragma unroll
  for (int d = 0; d < kSlice; d++) {
#pragma unroll
    for (int i = 0; i < kColumns; i++) sums[i] = fmaf(a[row][d], b[share + kShare * i][d], sums[i]);
  }
}

/// out[first + column] = out·decay + Σ_j weights[row][j]·slice[j][column].
__device__ inline void add_weighted(float* out, int32_t first, int32_t size, float decay,
                                    const Slice& weights, const Slice& slice, int row, int share) {
#pragma unroll
  for (int i = 0; i < kColumns; i++) {
    const int column = share + kShare * i;
    if (first + column >= size) continue;
    float sum = out[first + column] * decay;
    for (int j = 0; j < kRows; j++) sum = fmaf(weights[row][j], slice[j][column], sum);
    out[first + column] = sum;
  }
}

/// Reductions over the four lanes of a row.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_portable_kernel(const __grid_constant__ Attention p, const __grid_constant__ AttentionTensors t,
                              float* lse) {
  __shared__ Slice left, right, weights;
  extern __shared__ float outputs[];
  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), kRows);
  if (!tile.exists) return;
  const int row = static_cast<int>(threadIdx.x) / kShare, share = static_cast<int>(threadIdx.x) % kShare;
  const int32_t query = tile.start + row;
  const auto q = head_rows<const T>(t.q, tile, head, p.heads, p.size);
  const auto k = head_rows<const T>(t.k, tile, kv_head, p.kv_heads, p.size);
  const auto v = head_rows<const T>(t.v, tile, kv_head, p.kv_heads, p.size);
  const VisibleRange visible = visible_keys(p, tile, query);
  float* const out = outputs + row * p.size;
  for (int d = share; d < p.size; d += kShare) out[d] = 0;
  const float scale = p.scale * kLog2e;
  float maximum = kMinimum, sum = 0;
  const int32_t end = end_key(p, tile, tile.start, kRows);
  for (int32_t key = first_key(p, tile.start) / kRows * kRows; key < end; key += kRows) {
    float scores[kColumns] = {};
    for (int32_t d = 0; d < p.size; d += kSlice) {
      __syncthreads();
      load_slice(left, q, tile.start, d);
      load_slice(right, k, key, d);
      __syncthreads();
      multiply(scores, left, right, row, share);
    }
    float new_maximum = maximum;
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      scores[i] = key_visible(p, tile, visible, key + share + kShare * i) ? scores[i] * scale : kMasked;
      new_maximum = fmaxf(new_maximum, scores[i]);
    }
    new_maximum = row_max(new_maximum);
    const float decay = exp2f(maximum - new_maximum);
    maximum = new_maximum;
    sum *= decay;
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      const float weight = exp2f(scores[i] - new_maximum);
      sum += weight;
      weights[row][share + kShare * i] = weight;
    }
    for (int32_t d = 0; d < p.size; d += kSlice) {
      __syncthreads();
      load_slice(right, v, key, d);
      __syncthreads();
      add_weighted(out, d, p.size, decay, weights, right, row, share);
    }
  }
  sum = row_sum(sum);
  if (query >= tile.length) return;
  if (share == 0) lse[head * p.tokens + tile.begin + query] = maximum * kLn2 + logf(sum);
  const float inverse = 1.0f / sum;
  T* const to = head_rows<T>(t.o, tile, head, p.heads, p.size).row(query);
  for (int d = share; d < p.size; d += kShare) to[d] = from_float<T>(out[d] * inverse);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_portable_queries_kernel(const __grid_constant__ Attention p,
                                      const __grid_constant__ AttentionTensors t) {
  __shared__ Slice q_slice, do_slice, k_slice, v_slice;
  extern __shared__ float outputs[];
  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), kRows);
  if (!tile.exists) return;
  const int row = static_cast<int>(threadIdx.x) / kShare, share = static_cast<int>(threadIdx.x) % kShare;
  const int32_t query = tile.start + row;
  const auto q = head_rows<const T>(t.q, tile, head, p.heads, p.size);
  const auto dout = head_rows<const T>(t.dout, tile, head, p.heads, p.size);
  const auto k = head_rows<const T>(t.k, tile, kv_head, p.kv_heads, p.size);
  const auto v = head_rows<const T>(t.v, tile, kv_head, p.kv_heads, p.size);
  const VisibleRange visible = visible_keys(p, tile, query);
  const bool inside = query < tile.length;
  const int64_t at = head * p.tokens + tile.begin + query;
  const float lse = inside ? t.lse[at] * kLog2e : kPaddedLse, delta = inside ? t.delta[at] : 0.0f;
  float* const dq = outputs + row * p.size;
  for (int d = share; d < p.size; d += kShare) dq[d] = 0;
  const int32_t end = end_key(p, tile, tile.start, kRows);
  for (int32_t key = first_key(p, tile.start) / kRows * kRows; key < end; key += kRows) {
    float scores[kColumns] = {}, slopes[kColumns] = {};
    for (int32_t d = 0; d < p.size; d += kSlice) {
      __syncthreads();
      load_slice(q_slice, q, tile.start, d);
      load_slice(do_slice, dout, tile.start, d);
      load_slice(k_slice, k, key, d);
      load_slice(v_slice, v, key, d);
      __syncthreads();
      multiply(scores, q_slice, k_slice, row, share);
      multiply(slopes, do_slice, v_slice, row, share);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      const bool seen = key_visible(p, tile, visible, key + share + kShare * i);
      const float weight = seen ? exp2f(fmaf(scores[i], p.scale * kLog2e, -lse)) : 0.0f;
      q_slice[row][share + kShare * i] = seen ? (slopes[i] - delta) * (weight * p.scale) : 0.0f;
    }
    for (int32_t d = 0; d < p.size; d += kSlice) {
      __syncthreads();
      load_slice(k_slice, k, key, d);
      __syncthreads();
      add_weighted(dq, d, p.size, 1, q_slice, k_slice, row, share);
    }
  }
  if (!inside) return;
  T* const to = head_rows<T>(t.dq, tile, head, p.heads, p.size).row(query);
  for (int d = share; d < p.size; d += kShare) to[d] = from_float<T>(dq[d]);
}

/// dk, dv or both; `outputs` holds each of them.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_portable_keys_kernel(const __grid_constant__ Attention p,
                                   const __grid_constant__ AttentionTensors t, bool makes_keys,
                                   bool makes_values) {
  __shared__ Slice q_slice, do_slice, k_slice, v_slice;
  extern __shared__ float outputs[];
  const unsigned kv_heads = static_cast<unsigned>(p.kv_heads);
  const int32_t kv_head = static_cast<int32_t>(blockIdx.x % kv_heads);
  const AttentionTile tile = find_tile(p, blockIdx.x / kv_heads, kRows, true);
  if (!tile.exists) return;
  const int row = static_cast<int>(threadIdx.x) / kShare, share = static_cast<int>(threadIdx.x) % kShare;
  const int32_t key = tile.start + row;
  const auto k = head_rows<const T>(t.k, tile, kv_head, p.kv_heads, p.size);
  const auto v = head_rows<const T>(t.v, tile, kv_head, p.kv_heads, p.size);
  float* const dv = outputs + row * p.size;
  float* const dk = dv + (makes_values ? kRows * p.size : 0);
  for (int d = share; d < p.size; d += kShare) {
    if (makes_values) dv[d] = 0;
    if (makes_keys) dk[d] = 0;
  }
  const int32_t last = tile.start + kRows < tile.length ? tile.start + kRows : tile.length;
  const int32_t begin = first_query(p, tile.start) / kRows * kRows,
                end = end_query(p, tile, tile.start, last - tile.start);
  for (int32_t head = kv_head * p.group; head < (kv_head + 1) * p.group; head++) {
    const auto q = head_rows<const T>(t.q, tile, head, p.heads, p.size);
    const auto dout = head_rows<const T>(t.dout, tile, head, p.heads, p.size);
    for (int32_t query = begin; query < end; query += kRows) {
      float scores[kColumns] = {}, slopes[kColumns] = {};
      for (int32_t d = 0; d < p.size; d += kSlice) {
        __syncthreads();
        load_slice(q_slice, q, query, d);
        load_slice(do_slice, dout, query, d);
        load_slice(k_slice, k, tile.start, d);
        load_slice(v_slice, v, tile.start, d);
        __syncthreads();
        multiply(scores, k_slice, q_slice, row, share);
        multiply(slopes, v_slice, do_slice, row, share);
      }
      __syncthreads();
      // k_slice becomes p, v_slice becomes ds: rows are keys, columns are queries.
#pragma unroll
      for (int i = 0; i < kColumns; i++) {
        const int column = share + kShare * i;
        const bool seen = key_visible(p, tile, visible_keys(p, tile, query + column), key);
        const int64_t at = head * p.tokens + tile.begin + query + column;
        const float weight = seen ? exp2f(fmaf(scores[i], p.scale * kLog2e, -t.lse[at] * kLog2e)) : 0.0f;
        k_slice[row][column] = weight;
        v_slice[row][column] = seen ? (slopes[i] - t.delta[at]) * (weight * p.scale) : 0.0f;
      }
      for (int32_t d = 0; d < p.size; d += kSlice) {
        __syncthreads();
        if (makes_keys) load_slice(q_slice, q, query, d);
        if (makes_values) load_slice(do_slice, dout, query, d);
        __syncthreads();
        if (makes_values) add_weighted(dv, d, p.size, 1, k_slice, do_slice, row, share);
        if (makes_keys) add_weighted(dk, d, p.size, 1, v_slice, q_slice, row, share);
      }
    }
  }
  if (key >= tile.length) return;
  T* const to_dk = head_rows<T>(t.dk, tile, kv_head, p.kv_heads, p.size).row(key);
  T* const to_dv = head_rows<T>(t.dv, tile, kv_head, p.kv_heads, p.size).row(key);
  for (int d = share; d < p.size; d += kShare) {
    if (makes_keys) to_dk[d] = from_float<T>(dk[d]);
    if (makes_values) to_dv[d] = from_float<T>(dv[d]);
  }
}

/// Bytes for the outputs of `rows` rows. E_UNSUPPORTED where a block cannot have as many.
int64_t output_bytes(const Stream& stream, const Attention& problem) {
  constexpr int64_t kStatic = 4 * sizeof(Slice);
  const int64_t bytes = int64_t{kRows} * problem.size * 4;
  if (bytes + kStatic > stream.hardware.shared_per_block)
    throw Error(
        "E_UNSUPPORTED",
        format("attention: a head of %d elements needs more shared memory than this GPU has; %lld fit",
               problem.size,
               static_cast<long long>((stream.hardware.shared_per_block - kStatic) / (kRows * 4))));
  return bytes;
}

}  // namespace

void attention_forward_portable(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                                float* lse, DType dtype) {
  const int64_t shared = output_bytes(stream, problem);
  by_storage(dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(attention_portable_kernel<T>, problem.max_tiles * problem.heads, kThreads, shared, problem,
                  tensors, lse);
  });
}

void attention_backward_portable(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                                 DType dtype) {
  const int64_t shared = output_bytes(stream, problem);
  const bool at_once =
      2 * shared + 4 * static_cast<int64_t>(sizeof(Slice)) <= stream.hardware.shared_per_block;
  by_storage(dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t key_blocks = problem.max_tiles * problem.kv_heads;
    stream.launch(attention_portable_queries_kernel<T>, problem.max_tiles * problem.heads, kThreads, shared,
                  problem, tensors);
    const auto keys = attention_portable_keys_kernel<T>;
    if (at_once) return stream.launch(keys, key_blocks, kThreads, 2 * shared, problem, tensors, true, true);
    stream.launch(keys, key_blocks, kThreads, shared, problem, tensors, false, true);
    stream.launch(keys, key_blocks, kThreads, shared, problem, tensors, true, false);
  });
}

}  // namespace steptrain::cuda
