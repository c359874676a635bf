// The new token of a row in a step of decoding: its queries on their way to shared memory, and its key and value there and into
// the cache.
#pragma once

#include "cuda/attention/paged_tile.cuh"

namespace steptrain::cuda::paged {

/// new_group of cuda/attention/new_heads.cuh, to the bit, by 16 bytes at a time where each half of a head has
/// whole groups.
__device__ inline void new_eight(const Heads<bf16>& heads, const HeadShape& shape, const Rotary& rotary,
                                 int64_t at, float scale, int64_t angles, int64_t d, float (&x)[kEight]) {
  const int64_t half = shape.size / 2;
  if (half % kEight != 0) return new_group(heads, shape, rotary, at, scale, angles, d, x);
  const bool lower_half = d < half;
  const int64_t partner = lower_half ? d + half : d - half, angle = angles + (lower_half ? d : partner);
  const bool wide =
      (reinterpret_cast<uintptr_t>(rotary.cosines) | reinterpret_cast<uintptr_t>(rotary.sines)) % 16 == 0;
  float own[kEight], other[kEight], cosine[kEight], sine[kEight];
  load8(heads.data + at + d, kEight, true, own);
  load8(heads.data + at + partner, kEight, true, other);
  load8(rotary.cosines + angle, kEight, wide, cosine);
  load8(rotary.sines + angle, kEight, wide, sine);
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    if (heads.weight) {
      own[i] = stored<bf16>(own[i] * scale * heads.weight_of(d + i));
      other[i] = stored<bf16>(other[i] * scale * heads.weight_of(partner + i));
    }
    x[i] = fmaf(own[i], cosine[i], lower_half ? 0.0f - other[i] * sine[i] : other[i] * sine[i]);
  }
}

/// The page of a tile's row that holds `key`, which is less than all its pages hold. -1, reported once by each
/// warp, where there is no such page. `early`: before the kernel's turn, past a cache that might hold an older
/// table.
__device__ inline int32_t page_of(const Paged& p, const PagedTile& tile, int32_t key,
                                  const FaultReporter& faults, bool early) {
  const int32_t* const at = p.pages + int64_t{tile.row} * p.max_pages + key / kPageTokens;
  const int32_t page = early ? *static_cast<const volatile int32_t*>(at) : *at;
  if (page >= 0 && page < p.pages_held) return page;
  if (threadIdx.x % kWarp == 0)
    report(faults, FaultKind::outside, p.pages_input, tile.row, page, p.pages_held, key / kPageTokens + 1);
  return -1;
}

/// Puts the queries of a tile, normed and rotated, into shared memory, and beside them, where the block
/// `adds` it, the new key and its value, which the block of the group's first heads stores in the cache.
template <int kSize>
__device__ void put_new(char* shared, bf16* cache, const Paged& p, const NewTokens& tokens,
                        const PagedTile& tile, int32_t kv_head, bool adds, const FaultReporter& faults) {
  using In = Layout<kSize>;
  const HeadShape& shape = tokens.shape;
  const int thread = static_cast<int>(threadIdx.x), place = thread / shape.lanes, lane = thread % shape.lanes;
  const int d = lane * kEight, slots = tile.rows + (adds ? 1 : 0);  // queries, then the new key
  const int32_t last = tile.length - 1;
  const int64_t new_at = (tile.begin * tokens.k.count + kv_head) * shape.size;
  bf16* to = nullptr;  // the new key's place in the cache
  if (adds && tile.first == 0) {
    const int64_t page = page_of(p, tile, last, faults, false);
    if (page >= 0)
      to = cache + page * p.elements + (int64_t{kv_head} * 2 * kPageTokens + last % kPageTokens) * p.width;
  }
  if (adds && thread >= kThreads - kSize / kEight) {
    const int chunk = thread - (kThreads - kSize / kEight);
    if (chunk * kEight < p.size) {
      const uint4 value = *reinterpret_cast<const uint4*>(tokens.v + new_at + chunk * kEight);
      reinterpret_cast<uint4*>(shared + In::kNewValue)[chunk] = value;
      if (to) *reinterpret_cast<uint4*>(to + kPageTokens * p.width + chunk * kEight) = value;
    }
  }
  for (int first = 0; first < slots; first += kThreads / shape.lanes) {
    const int slot = first + place;
    const bool inside = slot < slots && tile.length > 0, key = slot == tile.rows;
    const Heads<bf16> heads{key ? tokens.k.data : tokens.q.data, key ? tokens.k.weight : tokens.q.weight,
                            key ? tokens.k.weight_dtype : tokens.q.weight_dtype, 0};
    const int64_t at = !inside ? 0 : key ? new_at : element_of(p, tile, kv_head, slot);
    const float scale = head_scale(heads, shape, at, inside);
    if (inside && d < p.size) {
      float x[kEight];
      new_eight(heads, shape, tokens.rotary, at, scale, int64_t{last} * (shape.size / 2), d, x);
      store8(reinterpret_cast<bf16*>(key ? shared + In::kNewKey + d * 2
                                         : In::Queries::at(shared + In::kQueries, slot, lane)),
             kEight, true, x);
      if (key && to) store8(to + d, kEight, true, x);
    }
    __syncwarp();
  }
}

}  // namespace steptrain::cuda::paged
