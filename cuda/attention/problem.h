// What attention and its backward share: the problem, how a block finds its tile of queries (or keys), the
// mask, and the kernels' host functions. T tokens, Hq query and Hk key heads of D elements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "cuda/log2.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

constexpr float kMasked = -std::numeric_limits<float>::infinity();  // a score that weighs exactly 0
constexpr float kMinimum = -1e20f;   // the maximum of no scores: finite, and below any score
constexpr float kPaddedLse = 1e30f;  // lse (log2 units) of rows past the sequence: every p is 0

/// One tile of one sequence.
struct alignas(16) AttentionTile {
  int32_t begin;   // the sequence's first token
  int32_t length;  // of the sequence
  int32_t start;   // the tile's first token, relative to the sequence's
  int32_t exists;  // 0: no tile; else 1 + the tiles of all sequences before this one
};

/// Extents and settings of one call, as kernels need them.
struct Attention {
  int64_t tokens;
  int32_t heads, kv_heads, group, size, sequences;
  const int32_t* cu_seqlens;
  const int32_t* branch;  // or null
  bool causal;
  int32_t window;  // 0: none
  float scale;
  const AttentionTile* tiles;  // [max_tiles], in the order in which blocks should start
  int64_t max_tiles;           // at least as many as there are
};

/// The tensors of both directions; absent ones are null.
struct AttentionTensors {
  const void *q, *k, *v, *dout;
  const float *lse, *delta;  // [Hq,T]; delta = Σ_d do·o
  void *o, *dq, *dk, *dv;
};

/// How blocks of keys divide the heads of a group: where KV heads are few, one block for all heads would
/// leave most of a GPU idle. With more than one part, each writes its sums here, and they are added in order.
struct GroupParts {
  int32_t parts, heads;  // heads of a part; the last may have fewer
  float *dk, *dv;        // [parts][T,Hk,D], or null: one part writes the outputs itself
};

/// The columns of a launch, each a head or a part of one, in runs of `together`: all tiles of the first run come
/// first, so that what its blocks read, of many sequences, stays in the L2 cache.
struct Columns {
  int32_t all, together;
};
/// Of a kernel whose columns read `bytes` of each token; `run` neighbours, which read the same, stay together.
Columns columns_in_cache(const Attention& problem, int32_t columns, int32_t run, int64_t bytes);

/// Checks the arguments (E_DTYPE, E_SHAPE; cu_seqlens, the op's input `cu_input`, on the device) and finds
/// the tiles of `rows` tokens, counted from each sequence's own token 0. One launch.
Attention plan_attention(Stream& stream, const char* op, const TensorView& q, const TensorView& k,
                         const TensorView& v, const TensorView& cu_seqlens, int cu_input,
                         const TensorView& branch, bool causal, int64_t window, float scale, int rows);
inline Attention plan_attention(Stream& stream, const char* op, const TensorView& q, const TensorView& k,
                                const TensorView& v, const TensorView& cu_seqlens, int cu_input,
                                const TensorView& branch, const Args& args, int rows) {
  return plan_attention(stream, op, q, k, v, cu_seqlens, cu_input, branch, args.i(0) != 0, args.i(1),
                        args.f(2), rows);
}

/// Σ_d do·o of each head and token, [Hq,T], in workspace. One launch.
float* attention_delta(Stream& stream, const TensorView& dout, const TensorView& o);

/// Tensor cores: bf16, D a multiple of 8 up to 256, addresses multiples of 16 bytes. The forward needs a
/// scale above 0, since it takes the maximum of unscaled scores. Returns the `rows` for plan_attention.
int forward_bf16_rows(int64_t size);
void attention_forward_bf16(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                            float* lse);

/// The backward has a kernel for each output side, which recomputes the probabilities from lse, so that it is
/// deterministic without atomics and without one block waiting for another:
///   p = exp(scale·q·k - lse)   ds = p·(do·v - delta)   queries: dq = scale·ds·k   keys: dk = scale·dsᵀ·q,
///   dv = pᵀ·do, over the heads of the group in order
constexpr int kBackwardRows = 64;
void attention_queries_bf16(Stream& stream, const Attention& problem, const AttentionTensors& tensors);
void attention_keys_bf16(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                         const GroupParts& parts);

/// The same on sm_90, D of 64 or 128; kHopperRows for both directions. The forward has two kernels of the same bits:
/// one with a block for each tile of queries, and one with persistent blocks, which load a tile while they end another.
constexpr int kHopperRows = 128;
void attention_forward_sm90(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                            float* lse);
void attention_forward_sm90_persistent(Stream& stream, const Attention& problem,
                                       const AttentionTensors& tensors, float* lse);
/// The backward: seven products of heads of 128, five in one kernel of heads of 64 (an H100: 1.18 to 1.30 times as fast),
/// and of heads of 128 the successor, which has five too (choice.h).
void attention_queries_sm90(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                            const Columns& heads);
void attention_keys_sm90(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                         const GroupParts& parts, const Columns& columns);
void attention_backward_sm90(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                             const GroupParts& parts, const Columns& columns);
void attention_backward_sm90_128(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                                 const GroupParts& parts, const Columns& columns);

/// f32 arithmetic on either storage, any D that fits (E_UNSUPPORTED).
constexpr int kPortableRows = 32;
void attention_forward_portable(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                                float* lse, DType dtype);
void attention_backward_portable(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                                 DType dtype);

/// Whether q and the other tensors can take the tensor cores.
bool on_tensor_cores(const TensorView& q, std::initializer_list<TensorView> tensors);
/// Whether the kernels of sm_90 can take what the tensor cores can.
bool on_hopper(const Stream& stream, int64_t size);

#ifdef __CUDACC__

/// The tile of a block. `of_keys`: its mirror image in the sequence, since the first keys are visible to the
/// most causal queries.
__device__ inline AttentionTile find_tile(const Attention& p, int64_t index, int rows, bool of_keys = false) {
  AttentionTile tile = p.tiles[index];
  if (of_keys && tile.exists) tile.start = (tile.length - 1) / rows * rows - tile.start;
  return tile;
}

/// The tile of item `index` of tiles × columns, and its column.
struct TileOfColumn {
  AttentionTile tile;
  int32_t column;
};
__device__ inline TileOfColumn find_tile(const Attention& p, const Columns& columns, unsigned index, int rows,
                                         bool of_keys = false) {
  const auto tiles = static_cast<unsigned>(p.max_tiles), together = static_cast<unsigned>(columns.together),
             first = index / (tiles * together) * together, left = static_cast<unsigned>(columns.all) - first,
             width = left < together ? left : together;
  index -= first * tiles;
  return {find_tile(p, index / width, rows, of_keys), static_cast<int32_t>(first + index % width)};
}

/// The heads over which a block of keys sums: begin ≤ head < end, of the group of one KV head.
struct HeadRange {
  int32_t kv_head, part, begin, end;
};
__device__ inline HeadRange find_heads(const Attention& p, const GroupParts& parts, unsigned index) {
  const int32_t column = static_cast<int32_t>(index), kv_head = column / parts.parts,
                part = column % parts.parts, begin = kv_head * p.group + part * parts.heads,
                limit = (kv_head + 1) * p.group;
  return {kv_head, part, begin, begin + parts.heads < limit ? begin + parts.heads : limit};
}
/// Writes two neighbouring elements of a part's sums.
__device__ inline void put_part(float* sums, const Attention& p, const AttentionTile& tile,
                                const HeadRange& heads, int32_t key, int column, float first, float second) {
  if (key >= tile.length || column >= p.size) return;
  const int64_t row = (heads.part * p.tokens + tile.begin + key) * p.kv_heads + heads.kv_head;
  *reinterpret_cast<float2*>(sums + row * p.size + column) = make_float2(first, second);
}

/// The keys visible to a query: first ≤ key ≤ last, and of these the keys whose branch is 0 or its own.
struct VisibleRange {
  int32_t first, last, branch;
};
__device__ inline VisibleRange visible_keys(const Attention& p, const AttentionTile& tile, int32_t query) {
  if (query >= tile.length) return {0, -1, 0};
  return {p.window > 0 && query >= p.window ? query - p.window + 1 : 0, p.causal ? query : tile.length - 1,
          p.branch ? p.branch[tile.begin + query] : 0};
}
__device__ inline bool key_visible(const Attention& p, const AttentionTile& tile, const VisibleRange& visible,
                                   int32_t key) {
  if (key < visible.first || key > visible.last) return false;
  if (!p.branch) return true;
  const int32_t branch = p.branch[tile.begin + key];
  return branch == 0 || branch == visible.branch;
}
/// The same from the other side, the queries to which a key is visible: first ≤ query ≤ last, and of these
/// the queries of its branch, unless that is 0.
__device__ inline VisibleRange visible_queries(const Attention& p, const AttentionTile& tile, int32_t key) {
  if (key >= tile.length) return {0, -1, 0};
  return {p.causal ? key : 0,
          p.window > 0 && tile.length - key > p.window ? key + p.window - 1 : tile.length - 1,
          p.branch ? p.branch[tile.begin + key] : 0};
}
__device__ inline bool query_visible(const Attention& p, const AttentionTile& tile,
                                     const VisibleRange& visible, int32_t query) {
  if (query < visible.first || query > visible.last) return false;
  return visible.branch == 0 || visible.branch == p.branch[tile.begin + query];
}
/// Whether the queries [query, query + rows) are all within the sequence
/// and all keys [from, to) visible to each.
__device__ inline bool all_visible(const Attention& p, const AttentionTile& tile, int32_t query, int32_t rows,
                                   int32_t from, int32_t to) {
  const int32_t last = query + rows - 1;
  return !p.branch && to <= tile.length && last < tile.length && (!p.causal || to - 1 <= query) &&
         (p.window == 0 || from > last - p.window);
}
/// The first and one past the last key visible to any of `rows` queries from `query`.
__device__ inline int32_t first_key(const Attention& p, int32_t query) {
  return p.window > 0 && query >= p.window ? query - p.window + 1 : 0;
}
__device__ inline int32_t end_key(const Attention& p, const AttentionTile& tile, int32_t query,
                                  int32_t rows) {
  return p.causal && query + rows < tile.length ? query + rows : tile.length;
}
/// The first and one past the last query to which any of `keys` keys from `key` is visible.
__device__ inline int32_t first_query(const Attention& p, int32_t key) {
  return p.causal ? key : 0;
}
__device__ inline int32_t end_query(const Attention& p, const AttentionTile& tile, int32_t key,
                                    int32_t keys) {
  const int64_t end = int64_t{key} + keys - 1 + p.window;
  return p.window > 0 && end < tile.length ? static_cast<int32_t>(end) : tile.length;
}

#endif

}  // namespace steptrain::cuda
