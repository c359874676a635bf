// The tiles of an attention call, in the order in which blocks should start.
#include <algorithm>

#include "core/error.h"
#include "cuda/attention/problem.h"
#include "cuda/reduce.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kPlanThreads = 256;
/// With more of them blocks are many and sequences short, while the cost of sorting grows with their number.
constexpr int32_t kSortedSequences = 128;

/// ends[s] = Σ tiles of the sequences up to s, by one warp. All are 0, so that there are no tiles, where
/// cu_seqlens is invalid.
__device__ void end_tiles(const int32_t* cu_seqlens, int32_t sequences, int64_t tokens, int rows,
                          int32_t* ends, int cu_input, const FaultReporter& faults) {
  const int lane = static_cast<int>(threadIdx.x);
  int32_t before = 0;
  bool holds = true;
  for (int32_t first = 0; first < sequences; first += kWarp) {
    const int32_t s = first + lane;
    int64_t begin = 0, end = 0;
    if (s < sequences && !range_holds(faults, cu_input, cu_seqlens, s, sequences, tokens, begin, end)) {
      holds = false;
      begin = end = 0;
    }
    int32_t tiles = static_cast<int32_t>((end - begin + rows - 1) / rows);
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int32_t lower = __shfl_up_sync(0xffffffffu, tiles, distance);
      if (lane >= distance) tiles += lower;
    }
    if (s < sequences) ends[s] = before + tiles;
    before += __shfl_sync(0xffffffffu, tiles, kWarp - 1);
  }
  if (__all_sync(0xffffffffu, holds)) return;
  for (int32_t s = lane; s < sequences; s += kWarp) ends[s] = 0;
}

/// One block. A causal query in tile r of a sequence sees tiles 0 … r. `sorted`: tiles with the
/// largest r come first, whatever their sequence; the place of a tile is the number of tiles with a larger r,
/// plus those with the same r in earlier sequences. Otherwise sequence by sequence, last tile first.
__global__ void __launch_bounds__(kPlanThreads)
    attention_plan_kernel(const int32_t* cu_seqlens, int32_t sequences, int64_t tokens, int rows, bool sorted,
                          int32_t* ends, AttentionTile* tiles, int64_t max_tiles, int cu_input,
                          FaultReporter faults) {
  if (sequences == 0) {
    if (threadIdx.x == 0) no_range_holds(faults, cu_input, cu_seqlens, tokens);
  } else if (threadIdx.x < kWarp) {
    end_tiles(cu_seqlens, sequences, tokens, rows, ends, cu_input, faults);
  }
  __syncthreads();
  const int32_t total = sequences > 0 ? ends[sequences - 1] : 0;
  for (int64_t index = threadIdx.x; index < max_tiles; index += kPlanThreads) {
    if (index >= total) {
      tiles[index] = {};
      continue;
    }
    int32_t low = 0, high = sequences;  // the first sequence that ends after `index`
    while (low < high) {
      const int32_t middle = (low + high) / 2;
      if (ends[middle] > index) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const int32_t rank = ends[low] - 1 - static_cast<int32_t>(index);
    int64_t place = index;
    if (sorted) {
      place = 0;
      int32_t begin = 0;
      for (int32_t s = 0; s < sequences; s++) {
        const int32_t end = ends[s], more = end - begin - 1 - rank;
        begin = end;
        if (more > 0) place += more;
        if (more >= 0 && s < low) place++;
      }
    }
    tiles[place] = {cu_seqlens[low], cu_seqlens[low + 1] - cu_seqlens[low], rank * rows,
                    1 + (low > 0 ? ends[low - 1] : 0)};
  }
}

}  // namespace

bool on_tensor_cores(const TensorView& q, std::initializer_list<TensorView> tensors) {
  return q.dtype == DType::bf16 && q[2] <= 256 && all_wide(tensors, q[2]);
}

bool on_hopper([[maybe_unused]] const Stream& stream, [[maybe_unused]] int64_t size) {
#ifdef STEPTRAIN_SM90
  return stream.hardware.compute_capability == 90 && (size == 64 || size == 128);
#else
  return false;
#endif
}

Columns columns_in_cache(const Attention& p, int32_t columns, int32_t run, int64_t bytes) {
  constexpr int64_t kCacheBytes = 24 << 20;  // about half of an H100's, since two runs overlap
  const int64_t runs = kCacheBytes / std::max<int64_t>(p.tokens * bytes, 1);
  return {columns, static_cast<int32_t>(std::clamp<int64_t>(runs * run, run, std::max(columns, run)))};
}

Attention plan_attention(Stream& stream, const char* op, const TensorView& q, const TensorView& k,
                         const TensorView& v, const TensorView& cu_seqlens, int cu_input,
                         const TensorView& branch, bool causal, int64_t window, float scale, int rows) {
  if (k.dtype != q.dtype || v.dtype != q.dtype)
    throw Error("E_DTYPE", format("%s: q is %s, so k and v must be, got %s and %s", op, name_of(q.dtype),
                                  name_of(k.dtype), name_of(v.dtype)));
  const int64_t group = k[1] > 0 ? q[1] / k[1] : 0;
  if (q[1] != k[1] * group)
    throw Error("E_SHAPE", format("%s: %lld query heads cannot share %lld KV heads evenly", op,
                                  static_cast<long long>(q[1]), static_cast<long long>(k[1])));
  if (cu_seqlens[0] < 1)
    throw Error("E_SHAPE", format("%s: cu_seqlens is empty, expected at least one 0", op));
  Attention p{};
  p.tokens = q[0];
  p.heads = static_cast<int32_t>(q[1]);
  p.kv_heads = static_cast<int32_t>(k[1]);
  p.group = static_cast<int32_t>(group);
  p.size = static_cast<int32_t>(q[2]);
  p.sequences = static_cast<int32_t>(cu_seqlens[0] - 1);
  p.cu_seqlens = cu_seqlens.as<int32_t>();
  p.branch = branch.as<int32_t>();
  p.causal = causal;
  p.window = static_cast<int32_t>(std::clamp<int64_t>(window, 0, INT32_MAX));
  p.scale = scale;
  p.max_tiles = p.tokens == 0 ? 0 : p.tokens / rows + std::min<int64_t>(p.sequences, p.tokens);
  auto* const tiles = stream.scratch.take<AttentionTile>(p.max_tiles);
  const bool sorted = p.causal && p.window == 0 && p.sequences > 1 && p.sequences <= kSortedSequences;
  stream.launch(attention_plan_kernel, 1, kPlanThreads, 0, p.cu_seqlens, p.sequences, p.tokens, rows, sorted,
                stream.scratch.take<int32_t>(p.sequences), tiles, p.max_tiles, cu_input, stream.faults);
  p.tiles = tiles;
  return p;
}

}  // namespace steptrain::cuda
