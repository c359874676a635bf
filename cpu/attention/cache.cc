// The paged cache of keys and values: cache_write puts the heads of new tokens into their slots, keys normed where it
// gets weights and rotated where it gets rope's tables, queries likewise; cache_copy copies whole pages in the order given. Both write in place. advance
// turns what a step of decoding drew into the tokens of the next.
#include <algorithm>
#include <cstring>

#include "cpu/attention/new_tokens.h"
#include "cpu/attention/page.h"
#include "cpu/indices.h"
#include "cpu/norm.h"
#include "cpu/rope.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kTokens = 16;        // per task of cache_write
constexpr int64_t kPiece = 16 * 1024;  // elements of a page per task of cache_copy

void check_slots(const TensorView& slots, int64_t pages) {
  const int32_t* slot = slots.as<int32_t>();
  for (int64_t t = 0; t < slots[0]; t++) {
    if (slot[t] < -1 || slot[t] >= pages * kTile)
      throw Error("E_RANGE",
                  format("cache_write: slots[%lld] is %d, outside -1..%lld", static_cast<long long>(t),
                         slot[t], static_cast<long long>(pages * kTile - 1)));
  }
}

template <typename Operand, typename T = typename Operand::Storage>
void write_head(const T* k, const T* v, T* page, int64_t place, int64_t size) {
  const PageHead<Operand> at(size);
  for (int64_t d = 0; d < size; d++) page[at.key(place, d)] = k[d];
  // The last unit of an odd head takes part in products, so its padding must be 0.
  for (int64_t d = size; d < round_up(size, Operand::kSteps); d++) page[at.key(place, d)] = T{};
  for (int64_t d = 0; d < size; d++) page[at.value(place, d)] = v[d];
}

/// RMSNorm of a head into `to`, or the head itself without a weight.
template <typename T>
const T* normed(const T* head, const TensorView& weight, T* to, int64_t size, float eps) {
  if (!weight) return head;
  by_storage(weight.dtype, [&](auto tag) { rmsnorm_row(head, weight.as<decltype(tag)>(), to, size, eps); });
  return to;
}

void cache_write(Stream& stream, const Args& args) {
  const auto [k, v, slots, cache, cosines, sines, positions, k_weight, q, q_weight, rotated] =
      args.tensors<11>();
  check_slots(slots, cache[0]);
  if (!cosines != !sines || !cosines != !positions)
    throw Error("E_SHAPE", "cache_write: cos, sin and positions come together");
  if (cosines) check_tables("cache_write", k[2], cosines, positions);
  if (!q != !rotated || (q && !cosines) || (q_weight && !q))
    throw Error("E_SHAPE", "cache_write: q comes with cos, sin, positions and rotated, q_weight with q");
  write_new("cache_write", stream,
            {k, v, slots, cache, cosines, sines, positions, k_weight, q, q_weight, rotated}, args.f(0));
}

void advance(Stream& stream, const Args& args) {
  (void)stream;  // a few numbers: no region
  const auto [tokens, lengths, rows, pages, ids, positions, slots, next_lengths] = args.tensors<8>();
  for (int64_t r = 0; r < rows[0]; r++) {
    const int64_t s = rows.as<int32_t>()[r];
    if (s < -1 || s >= tokens[0])
      throw Error("E_RANGE",
                  format("advance: rows[%lld] is %lld, outside -1..%lld", static_cast<long long>(r),
                         static_cast<long long>(s), static_cast<long long>(tokens[0] - 1)));
    const int32_t length = s < 0 ? 0 : lengths.as<int32_t>()[s];
    if (s >= 0 && (length < 0 || length >= pages[1] * kTile))
      throw Error("E_RANGE",
                  format("advance: lengths[%lld] is %d, outside 0..%lld", static_cast<long long>(s), length,
                         static_cast<long long>(pages[1] * kTile - 1)));
    const int32_t page = s < 0 ? -1 : pages.as<int32_t>()[r * pages[1] + length / kTile];
    ids.as<int32_t>()[r] = s < 0 ? 0 : tokens.as<int32_t>()[s];
    positions.as<int32_t>()[r] = length;
    slots.as<int32_t>()[r] = page < 0 ? -1 : static_cast<int32_t>(page * kTile + length % kTile);
    next_lengths.as<int32_t>()[r] = s < 0 ? 0 : length + 1;
  }
}

void cache_copy(Stream& stream, const Args& args) {
  const auto [cache, from, to] = args.tensors<3>();
  check_indices("cache_copy", "from", from, cache[0]);
  check_indices("cache_copy", "to", to, cache[0]);
  const int64_t bytes = cache[1] * size_of(cache.dtype), piece = kPiece * size_of(cache.dtype);
  char* const pages = cache.as<char>();
  // A task takes a piece of every page, so that the copies of a piece run in order.
  stream.pool.run(from[0] ? (bytes + piece - 1) / piece : 0, [&](int64_t task) {
    const int64_t begin = task * piece, count = std::min(piece, bytes - begin);
    for (int64_t c = 0; c < from[0]; c++)
      std::memmove(pages + to.as<int32_t>()[c] * bytes + begin, pages + from.as<int32_t>()[c] * bytes + begin,
                   static_cast<size_t>(count));
  });
}

}  // namespace

void write_new(const char* op, Stream& stream, const NewTokens& tokens, float eps) {
  const auto& [k, v, slots, cache, cosines, sines, positions, k_weight, q, q_weight, rotated] = tokens;
  const int64_t count = k[0], heads = k[1], size = k[2], half = size / 2, elements = cache[1];
  if (const int64_t held = page_heads(op, cache, size); held != heads)
    throw Error("E_SHAPE", format("%s: k has %lld heads, the cache's pages hold %lld", op,
                                  static_cast<long long>(heads), static_cast<long long>(held)));
  by_operand(k.dtype, [&](auto operand) {
    using Operand = decltype(operand);
    using T = typename Operand::Storage;
    T* const changed = cosines || k_weight ? stream.scratch.take<T>(count * size) : nullptr;
    stream.pool.run((count + kTokens - 1) / kTokens, [&](int64_t task) {
      for (int64_t t = task * kTokens; t < std::min(count, (task + 1) * kTokens); t++) {
        const auto turn = [&](const T* head, T* to) {
          const int64_t angles = positions.as<int32_t>()[t] * half;
          rotate_head(head, to, cosines.as<float>() + angles, sines.as<float>() + angles, half, 1.0f);
        };
        for (int64_t row = t * q[1] * size; q && row < (t + 1) * q[1] * size; row += size) {
          T* const to = rotated.as<T>() + row;
          turn(normed(q.as<T>() + row, q_weight, to, size, eps), to);
        }
        const int64_t slot = slots.as<int32_t>()[t];
        if (slot < 0) continue;
        T* const page = cache.as<T>() + slot / kTile * elements;
        for (int64_t head = 0; head < heads; head++) {
          const int64_t row = (t * heads + head) * size;
          const T* key = normed(k.as<T>() + row, k_weight, changed + t * size, size, eps);
          if (cosines) {
            turn(key, changed + t * size);
            key = changed + t * size;
          }
          write_head<Operand>(key, v.as<T>() + row, page + head * head_elements(size), slot % kTile, size);
        }
      }
    });
  });
}

void register_cache(KernelTable& table) {
  table.set("cache_write", cache_write);
  table.set("cache_copy", cache_copy);
  table.set("advance", advance);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
