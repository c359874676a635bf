// What the kernels of attention_paged share. A token's bits depend on its own sequence alone: keys are cut
// into splits of kSplit, counted from key 0, whose results are combined in order.
#pragma once

#include "cuda/attention/page.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

constexpr int32_t kSplit = 512;
enum PagedInput { kQueryOffsets = 2, kPages, kLengths };

/// Extents and settings of one call.
struct Paged {
  const int32_t *offsets, *pages, *lengths;
  int32_t rows, max_pages, heads, group, size, width, window;
  int64_t tokens, pages_held, elements;
  float scale;  // log2 units
};

/// Whether the queries and the length of row r are valid; reports them where not.
__device__ inline bool row_holds(const Paged& p, int64_t r, const FaultReporter& faults, int64_t& begin,
                                 int64_t& end) {
  if (!range_holds(faults, kQueryOffsets, p.offsets, r, p.rows, p.tokens, begin, end)) return false;
  const int32_t length = p.lengths[r];
  if (!index_holds(faults, kLengths, r, length, p.max_pages * kPageTokens + 1)) return false;
  if (length > 0 && length < end - begin) {
    report(faults, FaultKind::too_short, kLengths, r, length, end - begin);
    return false;
  }
  return true;
}

/// The same of all rows, of which those without queries have no block; by all threads of one block.
__device__ inline void check_rows(const Paged& p, const FaultReporter& faults) {
  int64_t begin, end;
  for (int64_t r = threadIdx.x; r < p.rows; r += blockDim.x) row_holds(p, r, faults, begin, end);
  if (p.rows == 0 && threadIdx.x == 0) no_range_holds(faults, kQueryOffsets, p.offsets, p.tokens);
}

/// On tensor cores: heads of up to 128 elements in whole 16 bytes. q, cache and o are bf16.
void attention_paged_bf16(Stream& stream, const Paged& p, const void* q, const void* cache, void* o);

}  // namespace steptrain::cuda
