// What the kernels of attention_paged share. A token's bits depend on its own sequence alone.
#pragma once

#include "cuda/attention/new_heads.cuh"
#include "cuda/attention/page.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

constexpr int kQueryOffsets = 2, kPages = 3, kLengths = 4;  // of attention_paged's inputs

/// Extents and settings of one call.
struct Paged {
  const int32_t *offsets, *pages, *lengths;  // offsets: null where each row has one query
  int32_t rows, max_pages, heads, group, size, width, window;
  int64_t tokens, pages_held, elements, longest;
  float scale;                     // log2 units
  int pages_input, lengths_input;  // places among the op's inputs

  /// The first query of row r.
  __device__ int64_t begin(int64_t r) const { return offsets ? offsets[r] : r; }
};

/// Whether the queries and the length of row r are valid; reports them where not.
__device__ inline bool row_holds(const Paged& p, int64_t r, const FaultReporter& faults, int64_t& begin,
                                 int64_t& end) {
  if (!p.offsets) {
    begin = r, end = r + 1;
  } else if (!range_holds(faults, kQueryOffsets, p.offsets, r, p.rows, p.tokens, begin, end)) {
    return false;
  }
  const int32_t length = p.lengths[r];
  if (!index_holds(faults, p.lengths_input, r, length, p.longest + 1)) return false;
  if (length > 0 && length < end - begin) {
    report(faults, FaultKind::too_short, p.lengths_input, r, length, end - begin);
    return false;
  }
  return true;
}

/// The same of all rows, of which those without queries have no block; by all threads of one block.
__device__ inline void check_rows(const Paged& p, const FaultReporter& faults) {
  int64_t begin, end;
  for (int64_t r = threadIdx.x; r < p.rows; r += blockDim.x) row_holds(p, r, faults, begin, end);
  if (p.rows == 0 && p.offsets && threadIdx.x == 0)
    no_range_holds(faults, kQueryOffsets, p.offsets, p.tokens);
}

/// The new token of each row, which a step of decoding brings along: q, k and v as projections give them.
struct NewTokens {
  Heads<bf16> q, k;
  const bf16* v;
  HeadShape shape;
  Rotary rotary;
};

/// On tensor cores: heads of up to 128 elements in whole 16 bytes. q, cache and o are bf16.
void attention_paged_bf16(Stream& stream, const Paged& p, const void* q, void* cache, void* o);
/// The same for a step of decoding, which also stores the new keys and values in the cache.
void attention_step_bf16(Stream& stream, const Paged& p, const NewTokens& tokens, void* cache, void* o);

}  // namespace steptrain::cuda
