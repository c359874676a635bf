// The paged cache of keys and values: cache_write puts the heads of new tokens into their slots, keys normed where
// it gets weights and rotated where it gets rope's tables, queries likewise; cache_copy copies whole pages in the order given. Both write in place. advance
// turns what a step of decoding drew into the tokens of the next. One launch each.
#include "core/error.h"
#include "cuda/attention/new_heads.cuh"
#include "cuda/attention/new_tokens.h"
#include "cuda/attention/page.h"
#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kSlots = 2, kPositions = 6;  // of cache_write's inputs
constexpr int kFrom = 1, kTo = 2;
constexpr int kLengths = 1, kRows = 2;  // of advance's

template <typename T>
struct Writing {
  Heads<T> q, k;
  const T* v;
  T *rotated, *cache;
  NewPlaces places;
  int64_t tokens, width, pages;
  HeadShape shape;
  Rotary rotary;
};

/// The position of token t and its slot in the cache, -1 where it has none. False where they may not be used.
__device__ inline bool find_place(const NewPlaces& places, int64_t t, int64_t pages,
                                  const FaultReporter& faults, int64_t& position, int64_t& slot) {
  if (!places.slots) {
    const int64_t length = places.lengths[t];
    position = length - 1, slot = -1;
    if (!index_holds(faults, kStepLengths, t, length, places.longest + 1)) return false;
    if (length == 0) return false;
    const int64_t i = position / kPageTokens, page = places.pages[t * places.max_pages + i];
    if (page < 0 || page >= pages) {
      report(faults, FaultKind::outside, kStepPages, t, page, pages, i + 1);
      return false;
    }
    slot = page * kPageTokens + position % kPageTokens;
    return true;
  }
  position = 0, slot = places.slots[t];
  if (!places.positions) return true;
  position = places.positions[t];
  return index_holds(faults, kPositions, t, position, places.longest);
}

/// Neighbouring lanes take a head of a token: of q first, then of k with v.
template <typename T>
__global__ void __launch_bounds__(kThreads) cache_write_kernel(Writing<T> w, FaultReporter faults) {
  take_turn();
  const int64_t task = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / w.shape.lanes, size = w.shape.size;
  const int64_t all = w.q.count + w.k.count, t = task / all;
  const bool inside = t < w.tokens, is_key = task % all >= w.q.count;
  const Heads<T>& heads = is_key ? w.k : w.q;
  const int64_t head = is_key ? task % all - w.q.count : task % all, row = (t * heads.count + head) * size;
  const float scale = head_scale(heads, w.shape, row, inside);
  int64_t position, slot;
  if (!inside || !find_place(w.places, t, w.pages, faults, position, slot)) return;
  T* to = w.rotated + row;
  if (is_key) {
    if (slot == -1) return;
    if (slot < 0 || slot >= w.pages * kPageTokens) {
      report(faults, FaultKind::slot, kSlots, t, slot, w.pages * kPageTokens);
      return;
    }
    to = w.cache + ((slot / kPageTokens * w.k.count + head) * 2 * kPageTokens + slot % kPageTokens) * w.width;
  }
  for (int64_t d = threadIdx.x % w.shape.lanes * kEight; d < size; d += w.shape.lanes * kEight) {
    const int count = in_group(d, size);
    float x[kEight];
    new_group(heads, w.shape, w.rotary, row, scale, position * (size / 2), d, x);
    store8(to + d, count, w.shape.wide, x);
    if (!is_key) continue;
    load8(w.v + row + d, count, w.shape.wide, x);
    store8(to + kPageTokens * w.width + d, count, w.shape.wide, x);
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
  write_new({k, v, cache, cosines, sines, k_weight, q, q_weight, rotated},
            {slots.as<int32_t>(), positions.as<int32_t>(), nullptr, nullptr, 0, cosines[0]}, args.f(0),
            stream);
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

void write_new(const NewTensors& tensors, const NewPlaces& places, float eps, Stream& stream) {
  const auto& [k, v, cache, cosines, sines, k_weight, q, q_weight, rotated] = tensors;
  const int64_t heads = k[1], size = k[2], query_heads = q ? q[1] : 0;
  const HeadShape shape{size, lanes_for(size), eps, all_wide({k, v, q, rotated, cache}, size)};
  const int64_t tasks = k[0] * (query_heads + heads) * shape.lanes;
  by_storage(k.dtype, [&](auto t) {
    using T = decltype(t);
    const Writing<T> writing{{q.as<T>(), q_weight.data, q_weight.dtype, query_heads},
                             {k.as<T>(), k_weight.data, k_weight.dtype, heads},
                             v.as<T>(),
                             rotated.as<T>(),
                             cache.as<T>(),
                             places,
                             k[0],
                             page_width(size),
                             cache[0],
                             shape,
                             {cosines.as<const float>(), sines.as<const float>()}};
    stream.launch_early({}, cache_write_kernel<T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, writing,
                        stream.faults);
  });
}

void register_cache(KernelTable& table) {
  table.set("cache_write", cache_write);
  table.set("cache_copy", cache_copy);
  table.set("advance", advance);
}

}  // namespace steptrain::cuda
