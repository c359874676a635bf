// Attention over the paged cache: o = softmax(scale·q·kᵀ, visible keys)·v; o is overwritten. The visible keys of a
// query are those up to its own, with a window only the last `window` of them. bf16 heads of up to 128
// elements in whole 16 bytes go to tensor cores (cuda/attention/paged_bf16.cu). The rest is here: any head
// size, f32 arithmetic on either storage, on the ordinary cores. A block takes one query of one head and
// walks over its pages. An online softmax runs over each split of kSplit keys, counted from key 0, and the results of the splits are
// combined in order, so a token's bits depend on its own sequence alone. What lies past a row's length is
// not read. One launch. attention_step puts the new token of each row into the cache first; with tensor cores in the same launch,
// else by one of cache_write's.
// With D = 128 a page of one KV head is 2·64·128 multiply-adds, 256 clocks of a multiprocessor of sm_80 with 64
// lanes, beside 32 KiB in bf16, about 690 clocks at its share of the L2 cache's 5,120 bytes a clock: loads are
// the bound. A block holds 1.75 KiB of shared memory; eight blocks run on a multiprocessor.
#include <algorithm>

#include "core/error.h"
#include "cuda/attention/new_tokens.h"
#include "cuda/attention/paged.cuh"
#include "cuda/log2.h"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 128, kWarpSize = 32;
constexpr int kTile = static_cast<int>(kPageTokens);
constexpr int32_t kSplit = 512;     // keys
constexpr float kMinimum = -1e20f;  // the maximum of no scores: finite, and below any score

/// A query's row and visible keys, first ≤ key ≤ last. `has_keys` is false where the row is empty.
struct Query {
  int32_t row, first, last;
  bool has_keys;
};

__device__ inline Query find_query(const Paged& p, int64_t t, const FaultReporter& faults, bool& holds) {
  int32_t low = 0, high = p.rows - 1;  // the first row that ends after t
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (p.begin(middle + 1) > t) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  int64_t begin, end;
  holds = row_holds(p, low, faults, begin, end) && begin <= t && t < end;
  if (!holds) return {};
  const int32_t length = p.lengths[low], last = length - static_cast<int32_t>(end - t);
  return {low, p.window > 0 && last >= p.window ? last - p.window + 1 : 0, last, length > 0};
}

/// The softmax of one head, computed by the whole block. Every thread has the maximum and the sum; each sums[d]
/// belongs to one thread.
struct Running {
  float maximum = kMinimum, sum = 0;
  float* sums;  // [size], in shared memory

  __device__ void clear(int size) {
    maximum = kMinimum, sum = 0;
    for (int d = static_cast<int>(threadIdx.x); d < size; d += kThreads) sums[d] = 0;
  }
  __device__ void add(const Running& other, int size) {
    const float to = fmaxf(maximum, other.maximum), own = exp2f(maximum - to),
                others = exp2f(other.maximum - to);
    for (int d = static_cast<int>(threadIdx.x); d < size; d += kThreads)
      sums[d] = fmaf(sums[d], own, other.sums[d] * others);
    sum = fmaf(sum, own, other.sum * others);
    maximum = to;
  }
};

/// Adds the keys at places `from` to `to` of a page, both included.
template <typename T>
__device__ void add_page(Running& running, const Paged& p, const float* q, const T* page, int from, int to) {
  __shared__ float weights[kTile];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
  for (int j = from + thread / kWarpSize; j <= to; j += kThreads / kWarpSize) {
    float score = 0;
    for (int d = lane; d < p.size; d += kWarpSize) score = fmaf(q[d], to_float(page[j * p.width + d]), score);
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
      score += __shfl_xor_sync(0xffffffffu, score, distance);
    if (lane == 0) weights[j] = score * p.scale;
  }
  __syncthreads();
  float maximum = running.maximum;
  for (int j = from; j <= to; j++) maximum = fmaxf(maximum, weights[j]);
  __syncthreads();
  const float decay = exp2f(running.maximum - maximum);
  running.maximum = maximum;
  if (thread >= from && thread <= to) weights[thread] = exp2f(weights[thread] - maximum);
  __syncthreads();
  running.sum *= decay;
  for (int j = from; j <= to; j++) running.sum += weights[j];
  const T* const values = page + kTile * p.width;
  for (int d = thread; d < p.size; d += kThreads) {
    float sum = running.sums[d] * decay;
    for (int j = from; j <= to; j++) sum = fmaf(weights[j], to_float(values[j * p.width + d]), sum);
    running.sums[d] = sum;
  }
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 8)
    attention_paged_kernel(const T* q, const T* cache, T* o, const __grid_constant__ Paged p,
                           FaultReporter faults) {
  extern __shared__ float heads[];
  const int64_t t = blockIdx.x / static_cast<unsigned>(p.heads);
  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads));
  if (blockIdx.x == 0) check_rows(p, faults);
  if (p.rows == 0) return;
  bool holds;
  const Query query = find_query(p, t, faults, holds);
  if (!holds) return;
  T* const to = o + (t * p.heads + head) * p.size;
  if (!query.has_keys) {
    for (int d = static_cast<int>(threadIdx.x); d < p.size; d += kThreads) to[d] = from_float<T>(0.0f);
    return;
  }
  float* const own = heads;
  for (int d = static_cast<int>(threadIdx.x); d < p.size; d += kThreads)
    own[d] = to_float(q[(t * p.heads + head) * p.size + d]);
  Running whole{}, split{};
  whole.sums = heads + p.size, split.sums = heads + 2 * p.size;
  whole.clear(p.size);
  split.clear(p.size);
  __syncthreads();
  for (int32_t tile = query.first / kTile * kTile; tile <= query.last; tile += kTile) {
    const int64_t index = int64_t{query.row} * p.max_pages + tile / kTile;
    const int64_t page = p.pages[index];
    if (page < 0 || page >= p.pages_held) {
      if (threadIdx.x == 0)
        report(faults, FaultKind::outside, p.pages_input, query.row, page, p.pages_held, tile / kTile + 1);
      return;
    }
    add_page(split, p, own, cache + page * p.elements + head / p.group * (2 * kPageTokens) * p.width,
             query.first > tile ? query.first - tile : 0,
             query.last - tile < kTile ? query.last - tile : kTile - 1);
    if ((tile + kTile) % kSplit != 0 && tile + kTile <= query.last) continue;
    whole.add(split, p.size);
    split.clear(p.size);
  }
  const float inverse = 1.0f / whole.sum;
  for (int d = static_cast<int>(threadIdx.x); d < p.size; d += kThreads)
    to[d] = from_float<T>(whole.sums[d] * inverse);
}

Paged problem_of(const char* op, const TensorView& q, const TensorView& cache, const TensorView& pages,
                 const TensorView& lengths, int64_t window, float scale) {
  const int64_t heads = q[1], size = q[2], kv_heads = page_heads(op, cache, size);
  if (heads % kv_heads != 0)
    throw Error("E_SHAPE", format("%s: %lld query heads cannot share %lld KV heads evenly", op,
                                  static_cast<long long>(heads), static_cast<long long>(kv_heads)));
  return {nullptr,
          pages.as<int32_t>(),
          lengths.as<int32_t>(),
          static_cast<int32_t>(lengths[0]),
          static_cast<int32_t>(pages[1]),
          static_cast<int32_t>(heads),
          static_cast<int32_t>(heads / kv_heads),
          static_cast<int32_t>(size),
          static_cast<int32_t>(page_width(size)),
          static_cast<int32_t>(window),
          q[0],
          cache[0],
          cache[1],
          pages[1] * kPageTokens,
          scale * kLog2e,
          0,
          0};
}

/// Whether tensor cores take it.
bool suits_tensor_cores(const Paged& p, const TensorView& q, std::initializer_list<TensorView> tensors) {
  return q.dtype == DType::bf16 && p.size <= 128 && p.scale > 0 && p.heads / p.group <= kTickets &&
         all_wide(tensors, p.size);
}

void launch_portable(Stream& stream, const char* op, const Paged& p, const TensorView& q,
                     const TensorView& cache, const TensorView& o) {
  const int64_t shared = 3 * p.size * static_cast<int64_t>(sizeof(float));
  if (shared > stream.hardware.shared_per_block - 1024)
    throw Error("E_UNSUPPORTED", format("%s: heads of %lld elements do not fit into shared memory", op,
                                        static_cast<long long>(p.size)));
  by_storage(q.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(attention_paged_kernel<T>, q[0] * p.heads, kThreads, shared, q.as<T>(), cache.as<T>(),
                  o.as<T>(), p, stream.faults);
  });
}

void attention_paged(Stream& stream, const Args& args) {
  const auto [q, cache, query_offsets, pages, lengths, o] = args.tensors<6>();
  Paged problem = problem_of("attention_paged", q, cache, pages, lengths, args.i(0), args.f(1));
  problem.offsets = query_offsets.as<int32_t>();
  problem.pages_input = kPages, problem.lengths_input = kLengths;
  if (suits_tensor_cores(problem, q, {q, cache, o}))
    return attention_paged_bf16(stream, problem, q.data, cache.data, o.data);
  launch_portable(stream, "attention_paged", problem, q, cache, o);
}

void attention_step(Stream& stream, const Args& args) {
  const auto [q, k, v, cache, pages, lengths, cosines, sines, k_weight, q_weight, o] = args.tensors<11>();
  Paged problem = problem_of("attention_step", q, cache, pages, lengths, args.i(1), args.f(2));
  problem.pages_input = kStepPages, problem.lengths_input = kStepLengths;
  const int64_t kv_heads = problem.heads / problem.group, size = problem.size;
  if (k[1] != kv_heads)
    throw Error("E_SHAPE", format("attention_step: k has %lld heads, the cache's pages hold %lld",
                                  static_cast<long long>(k[1]), static_cast<long long>(kv_heads)));
  if (size != 2 * cosines[1])
    throw Error("E_SHAPE",
                format("attention_step: head size %lld needs tables of width %lld with two halves, got %lld",
                       static_cast<long long>(size), static_cast<long long>(size / 2),
                       static_cast<long long>(cosines[1])));
  problem.longest = std::min(problem.longest, cosines[0]);
  if (suits_tensor_cores(problem, q, {q, k, v, cache, o})) {
    const NewTokens tokens{{q.as<bf16>(), q_weight.data, q_weight.dtype, problem.heads},
                           {k.as<bf16>(), k_weight.data, k_weight.dtype, kv_heads},
                           v.as<bf16>(),
                           {size, lanes_for(size), args.f(0), true},
                           {cosines.as<const float>(), sines.as<const float>()}};
    return attention_step_bf16(stream, problem, tokens, cache.data, o.data);
  }
  TensorView rotated = q;
  rotated.data = stream.scratch.take<char>(q.bytes());
  write_new(
      {k, v, cache, cosines, sines, k_weight, q, q_weight, rotated},
      {nullptr, nullptr, lengths.as<int32_t>(), pages.as<int32_t>(), problem.max_pages, problem.longest},
      args.f(0), stream);
  launch_portable(stream, "attention_step", problem, rotated, cache, o);
}

}  // namespace

void register_attention_paged(KernelTable& table) {
  table.set("attention_paged", attention_paged);
  table.set("attention_step", attention_step);
}

}  // namespace steptrain::cuda
