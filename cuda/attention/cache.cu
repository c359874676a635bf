// The paged cache of keys and values: cache_write puts the heads of new tokens into their slots, keys normed where
// it gets weights and rotated where it gets rope's tables, queries likewise; cache_copy copies whole pages in the order given. Both write in place. advance
// turns what a step of decoding drew into the tokens of the next. One launch each.
#include "core/error.h"
#include "cuda/attention/page.h"
#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kSlots = 2, kPositions = 6;  // of cache_write's inputs
constexpr int kFrom = 1, kTo = 2;
constexpr int kLengths = 1, kRows = 2;  // of advance's

/// rope's tables; without any, `positions` is null.
struct Rotary {
  const float *cosines, *sines;
  const int32_t* positions;
  int64_t limit;

  /// Element d of a head rotated by the angles from `at` on, as rope has it. head(e) is the head's element e.
  template <typename F>
  __device__ float of(F head, int64_t half, int64_t at, int64_t d) const {
    const int64_t e = d < half ? d : d - half;
    const float a = head(e), b = head(e + half);
    const float cosine = cosines[at + e], sine = sines[at + e];
    return d < half ? fmaf(a, cosine, 0.0f - b * sine) : fmaf(b, cosine, a * sine);
  }
};

/// Heads of tokens, with the weight of their norm, null without one.
template <typename T>
struct Heads {
  const T* data;
  const void* weight;
  DType weight_dtype;
  int64_t count;  // of a token

  __device__ float weight_of(int64_t d) const {
    return weight_dtype == DType::bf16 ? to_float(static_cast<const bf16*>(weight)[d])
                                       : static_cast<const float*>(weight)[d];
  }
};

template <typename T>
struct Writing {
  Heads<T> q, k;
  const T* v;
  T *rotated, *cache;
  const int32_t* slots;
  int64_t tokens, size, width, pages;
  float eps;
  int lanes;  // of a head, a power of two within a warp
  Rotary rotary;
  bool wide;
};

/// Neighbouring lanes take a head of a token, eight neighbouring elements each: of q first, then of k with v.
template <typename T>
__global__ void __launch_bounds__(kThreads) cache_write_kernel(Writing<T> w, FaultReporter faults) {
  const int64_t task = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / w.lanes;
  const int64_t all = w.q.count + w.k.count, t = task / all;
  const bool inside = t < w.tokens, is_key = task % all >= w.q.count;
  const Heads<T>& heads = is_key ? w.k : w.q;
  const int64_t head = is_key ? task % all - w.q.count : task % all, row = (t * heads.count + head) * w.size;
  const int64_t first = threadIdx.x % w.lanes * kEight, step = w.lanes * kEight;
  float squares = 0;
  for (int64_t d = first; inside && heads.weight && d < w.size; d += step) {
    float x[kEight];
    load8(heads.data + row + d, in_group(d, w.size), w.wide, x);
#pragma unroll
    for (int i = 0; i < kEight; i++) squares = fmaf(x[i], x[i], squares);
  }
  for (int distance = w.lanes / 2; distance > 0; distance /= 2)
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  if (!inside) return;
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(w.size) + w.eps);
  const auto element = [&](int64_t d) {
    const float x = to_float(heads.data[row + d]);
    return heads.weight ? stored<T>(x * scale * heads.weight_of(d)) : x;
  };

  const int64_t half = w.size / 2;
  int64_t angles = 0;
  if (w.rotary.positions) {
    const int64_t position = w.rotary.positions[t];
    if (!index_holds(faults, kPositions, t, position, w.rotary.limit)) return;
    angles = position * half;
  }
  T* to = w.rotated + row;
  if (is_key) {
    const int64_t slot = w.slots[t];
    if (slot == -1) return;
    if (slot < 0 || slot >= w.pages * kPageTokens) {
      report(faults, FaultKind::slot, kSlots, t, slot, w.pages * kPageTokens);
      return;
    }
    to = w.cache + ((slot / kPageTokens * w.k.count + head) * 2 * kPageTokens + slot % kPageTokens) * w.width;
  }
  for (int64_t d = first; d < w.size; d += step) {
    const int count = in_group(d, w.size);
    float x[kEight] = {};
#pragma unroll
    for (int i = 0; i < kEight; i++)
      if (i < count) x[i] = w.rotary.positions ? w.rotary.of(element, half, angles, d + i) : element(d + i);
    store8(to + d, count, w.wide, x);
    if (!is_key) continue;
    load8(w.v + row + d, count, w.wide, x);
    store8(to + kPageTokens * w.width + d, count, w.wide, x);
  }
}

void cache_write(Stream& stream, const Args& args) {
  const auto [k, v, slots, cache, cosines, sines, positions, k_weight, q, q_weight, rotated] =
      args.tensors<11>();
  const int64_t heads = k[1], size = k[2];
  if (const int64_t held = page_heads("cache_write", cache, size); held != heads)
    throw Error("E_SHAPE", format("cache_write: k has %lld heads, the cache's pages hold %lld",
                                  static_cast<long long>(heads), static_cast<long long>(held)));
  if (!cosines != !sines || !cosines != !positions)
    throw Error("E_SHAPE", "cache_write: cos, sin and positions come together");
  if (cosines && size != 2 * cosines[1])
    throw Error("E_SHAPE",
                format("cache_write: head size %lld needs tables of width %lld with two halves, got %lld",
                       static_cast<long long>(size), static_cast<long long>(size / 2),
                       static_cast<long long>(cosines[1])));
  if (!q != !rotated || (q && !cosines) || (q_weight && !q))
    throw Error("E_SHAPE", "cache_write: q comes with cos, sin, positions and rotated, q_weight with q");
  int lanes = 1;
  while (lanes < kWarp && lanes * kEight < size) lanes *= 2;
  const int64_t query_heads = q ? q[1] : 0, tasks = k[0] * (query_heads + heads) * lanes;
  by_storage(k.dtype, [&](auto t) {
    using T = decltype(t);
    const Writing<T> writing{
        {q.as<T>(), q_weight.data, q_weight.dtype, query_heads},
        {k.as<T>(), k_weight.data, k_weight.dtype, heads},
        v.as<T>(),
        rotated.as<T>(),
        cache.as<T>(),
        slots.as<int32_t>(),
        k[0],
        size,
        page_width(size),
        cache[0],
        args.f(0),
        lanes,
        {cosines.as<const float>(), sines.as<const float>(), positions.as<const int32_t>(), cosines[0]},
        all_wide({k, v, q, rotated, cache}, size)};
    stream.launch(cache_write_kernel<T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, writing,
                  stream.faults);
  });
}

/// What advance reads and writes.
struct Advance {
  const int32_t *tokens, *lengths, *rows, *pages;
  int32_t *ids, *positions, *slots, *next_lengths;
  int64_t before, count, width;  // rows of the step before and of the next, pages of a row
};

/// A thread per row.
__global__ void __launch_bounds__(kThreads) advance_kernel(Advance a, FaultReporter faults) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= a.count) return;
  int64_t s = a.rows[r], length = 0, page = -1;
  if (s < -1 || s >= a.before) {
    report(faults, FaultKind::slot, kRows, r, s, a.before);
    s = -1;
  }
  if (s >= 0) length = a.lengths[s];
  if (s >= 0 && !index_holds(faults, kLengths, s, length, a.width * kPageTokens)) s = -1, length = 0;
  if (s >= 0) page = a.pages[r * a.width + length / kPageTokens];
  a.ids[r] = s < 0 ? 0 : a.tokens[s];
  a.positions[r] = static_cast<int32_t>(length);
  a.slots[r] = page < 0 ? -1 : static_cast<int32_t>(page * kPageTokens + length % kPageTokens);
  a.next_lengths[r] = s < 0 ? 0 : static_cast<int32_t>(length + 1);
}

void advance(Stream& stream, const Args& args) {
  const auto [tokens, lengths, rows, pages, ids, positions, slots, next_lengths] = args.tensors<8>();
  const Advance a{tokens.as<int32_t>(),
                  lengths.as<int32_t>(),
                  rows.as<int32_t>(),
                  pages.as<int32_t>(),
                  ids.as<int32_t>(),
                  positions.as<int32_t>(),
                  slots.as<int32_t>(),
                  next_lengths.as<int32_t>(),
                  tokens[0],
                  rows[0],
                  pages[1]};
  stream.launch(advance_kernel, (rows[0] + kThreads - 1) / kThreads, kThreads, 0, a, stream.faults);
}

/// A thread copies the same eight elements of every page in turn, so the copies run in order.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    cache_copy_kernel(T* cache, const int32_t* from, const int32_t* to, int64_t copies, int64_t elements,
                      int64_t pages, FaultReporter faults, bool wide) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight;
  if (at >= elements) return;
  const int count = in_group(at, elements);
  for (int64_t c = 0; c < copies; c++) {
    if (!index_holds(faults, kFrom, c, from[c], pages) || !index_holds(faults, kTo, c, to[c], pages)) return;
    float x[kEight];
    load8(cache + from[c] * elements + at, count, wide, x);
    store8(cache + to[c] * elements + at, count, wide, x);
  }
}

void cache_copy(Stream& stream, const Args& args) {
  const auto [cache, from, to] = args.tensors<3>();
  const int64_t elements = cache[1], tasks = from[0] ? (elements + kEight - 1) / kEight : 0;
  by_storage(cache.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(cache_copy_kernel<T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, cache.as<T>(),
                  from.as<int32_t>(), to.as<int32_t>(), from[0], elements, cache[0], stream.faults,
                  all_wide({cache}, elements));
  });
}

}  // namespace

void register_cache(KernelTable& table) {
  table.set("cache_write", cache_write);
  table.set("cache_copy", cache_copy);
  table.set("advance", advance);
}

}  // namespace steptrain::cuda
