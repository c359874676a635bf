// attention_paged and attention_step on tensor cores (mma.sync, cp.async), for bf16 heads of up to 128 elements.
// A block's copies of a chunk are all under way before it waits for any.
// A block takes a tile of kRows rows, a KV head and one or more chunks of kChunk keys, counted
// from key 0. A chunk is one softmax: a warp makes the scores of its kKeys keys; warps agree on the maximum
// of each row; each multiplies the weights of all keys with 16 of every 64 columns of the values, so that
// nothing needs to be added up over warps. Sums are a fixed tree: the chunks of a section (kSection keys) in
// order, then the sections in order. Who computes a part of the tree follows from the shapes of the call: one
// block all of it, or many, whose parts the block that ends last joins by the same arithmetic. Where a key is
// masked it weighs exactly 0 and changes neither maximum nor sums, so a row's bits depend on its own keys
// alone, whatever rows share its tile or its batch.
// In a step of decoding (attention_step) a block copies keys and values of the cache before its turn, while
// the kernel in front still runs; then it norms and rotates the queries and the new key, which one of the
// blocks also stores.
#include <algorithm>

#include "cuda/attention/paged_join.cuh"
#include "cuda/attention/paged_new.cuh"

namespace steptrain::cuda {
namespace {

using namespace paged;

constexpr int64_t kMaxWorkspace = int64_t{64} << 20;  // bytes
/// A block a chunk up to kFineChunks of a row, whose results the last block reads, and kFine blocks of a
/// multiprocessor; up to kWholeSections of a row one block, where there are as many rows; else a block a section.
/// By trial on an H100.
constexpr int64_t kFineChunks = 64, kFine = 3, kWholeSections = 4;
/// Of a multiprocessor, as many as registers allow, and of sm_80 as its shared memory holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kLargeBlocks = 2;
#else
constexpr int kLargeBlocks = 3;
#endif
template <int kSize>
constexpr int kBlocks = kSize > 64 ? kLargeBlocks : 4;

/// `even`: the rows' lengths differ little, as those of the tiles of a prompt do.
Shares share(int64_t pairs, int64_t chunks, int64_t multiprocessors, bool even) {
  const int64_t sections = (chunks + kSection - 1) / kSection;
  const auto shares = [](int64_t blocks, int64_t span, int64_t unit, int64_t units) {
    return Shares{static_cast<int32_t>(blocks), static_cast<int32_t>(span), static_cast<int32_t>(unit),
                  static_cast<int32_t>(units)};
  };
  if (chunks <= kFineChunks && pairs * chunks <= kFine * multiprocessors) return shares(chunks, 1, 1, chunks);
  if (2 * pairs >= 3 * multiprocessors && (sections <= kWholeSections || even))
    return shares(1, sections * kSection, kSection, sections);
  return shares(sections, kSection, kSection, sections);
}

/// kNew: q comes from `tokens`, and so do the last key of each row and its value.
template <int kSize, bool kNew>
__global__ void __launch_bounds__(kThreads, kBlocks<kSize>)
    paged_bf16_kernel(const bf16* q, bf16* cache, bf16* o, const __grid_constant__ Paged p,
                      const __grid_constant__ Shares shares, const __grid_constant__ NewTokens tokens,
                      uint32_t* tickets, FaultReporter faults) {
  using In = Layout<kSize>;
  char* const shared = dynamic_shared();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  if constexpr (!kNew) take_turn();
  const auto [part, pair, kv_head, place] = block_of(p, shares);
  PagedTile tile{};
  if (p.rows > 0) {
    if constexpr (kNew) {
      tile = step_tile(p, place, faults);
    } else {
      tile = find_tile(p, place, faults);
    }
  }
  const KeyRange all = keys_of(p, tile);
  const Chunks seen = chunks_of(all);
  int32_t begin = part * shares.span, end = begin + shares.span - 1;
  begin = begin < seen.first ? seen.first : begin;
  end = end > seen.last ? seen.last : end;
  const bool works = tile.there && begin <= end;

  const int32_t cached = kNew ? all.last : all.last + 1;  // keys that the cache has
  int32_t page = -1;                                      // of the warp's keys
  const auto turn_to = [&](int32_t chunk, bool early) {
    const int32_t key = chunk * kChunk + warp * kKeys;
    page = -1;
    if (chunk <= end && key <= all.last && key + kKeys > all.first)
      page = page_of(p, tile, key, faults, early);
  };
  /// Starts the copy of the warp's keys of a chunk (or their values, kPageTokens rows further), with zeros
  /// for those that no row sees. The new key's place is left alone.
  const auto fetch = [&](char* to, int32_t chunk, int32_t further) {
    const int32_t key = chunk * kChunk + warp * kKeys;
    const bf16* const from = cache + (page >= 0 ? page * p.elements : 0) +
                             (int64_t{kv_head} * 2 * kPageTokens + key % kPageTokens + further) * p.width;
    if (chunk <= end) {
#pragma unroll
      for (int i = lane; i < kKeys * In::Keys::kChunks; i += kWarp) {
        const int row = i / In::Keys::kChunks, part = i % In::Keys::kChunks;
        const bool inside =
            page >= 0 && key + row >= all.first && key + row < cached && part * kEight < p.size;
        if (!kNew || key + row != all.last)
          cp_async(In::Keys::at(to, warp * kKeys + row, part),
                   from + (inside ? row * p.width + part * kEight : 0), inside);
      }
    }
    cp_async_commit();
  };
  if (works) {
    for (int i = thread; i < kRows * In::Queries::kChunks; i += kThreads) {
      const int row = i / In::Queries::kChunks, part = i % In::Queries::kChunks;
      const bool inside = row < tile.rows && part * kEight < p.size;
      if (!kNew || !inside)
        cp_async(In::Queries::at(shared + In::kQueries, row, part),
                 q + (inside ? element_of(p, tile, kv_head, row) + part * kEight : 0), inside);
    }
    cp_async_commit();
    turn_to(begin, kNew);
    fetch(shared + In::kKeysAt, begin, 0);
    fetch(shared + In::kValues, begin, kPageTokens);
  }
  if constexpr (kNew) {
    take_turn();
  } else if (blockIdx.x == 0 && shares.first == 0) {
    check_rows(p, faults);  // in a step each row has a block, which checks it
  }
  if (!works) return;

  const bool adds = kNew && tile.length > 0 && end == seen.last;
  if constexpr (kNew) put_new<kSize>(shared, cache, p, tokens, tile, kv_head, adds, faults);
  PagedTile* const kept = reinterpret_cast<PagedTile*>(shared + In::kTile);  // for the end
  if (thread == 0) *kept = tile;
  cp_async_wait<2>();
  __syncthreads();  // all threads see the queries, and the new key

  Sums<kSize> row_sums, section;
  const KeyRange visible[2] = {keys_of(p, tile, lane / 4), keys_of(p, tile, lane / 4 + 8)};
  float* const maxima = reinterpret_cast<float*>(shared + In::kMaxima);  // [warp][row]
  float* const masses = reinterpret_cast<float*>(shared + In::kMasses);
  const bool alone = begin == seen.first && end == seen.last;
  /// Leaves sums for the block that ends last.
  const auto leave = [&](const Sums<kSize>& sums, int32_t unit) {
    const int64_t at = shares.at(block_of(p, shares).pair, unit);
    const int32_t rows = kept->rows;
    sums.each(warp, lane, [&](int half, int column, float2 x) {
      const int row = lane / 4 + 8 * half;
      if (row < rows) *reinterpret_cast<float2*>(shares.sums + (at + row) * kSize + column) = x;
    });
    for (int half = 0; half < 2; half++)
      if (warp == 0 && lane % 4 == 0 && lane / 4 + 8 * half < rows)
        shares.parts[at + lane / 4 + 8 * half] = sums.part[half];
  };
  for (int32_t chunk = begin; chunk <= end; chunk++) {
    cp_async_wait<1>();  // the warp's keys
    if (adds && chunk == seen.last && warp == all.last % kChunk / kKeys && lane * kEight < kSize) {
      const int32_t row = all.last % kChunk;
      const uint4 none{};
      const bool holds = lane * kEight < p.size;
      *reinterpret_cast<uint4*>(In::Keys::at(shared + In::kKeysAt, row, lane)) =
          holds ? reinterpret_cast<const uint4*>(shared + In::kNewKey)[lane] : none;
      *reinterpret_cast<uint4*>(In::Keys::at(shared + In::kValues, row, lane)) =
          holds ? reinterpret_cast<const uint4*>(shared + In::kNewValue)[lane] : none;
    }
    __syncwarp();
    float scores[1][kKeys / 8][4];
    multiply_heads<typename In::Queries, typename In::Keys, 1, kKeys, kSize>(
        scores, shared + In::kQueries, 0, shared + In::kKeysAt, warp * kKeys, lane);
    __syncwarp();  // no lane still reads the keys
    turn_to(chunk + 1, false);
    fetch(shared + In::kKeysAt, chunk + 1, 0);
    float maximum[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      maximum[half] = kMinimum;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[0][j][2 * half + e];
          const int32_t key = chunk * kChunk + warp * kKeys + fragment_column(lane, 4 * j + e);
          if (key < visible[half].first || key > visible[half].last) score = kMasked;
          maximum[half] = fmaxf(maximum[half], score);
        }
      // Four lanes share a row.
      maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(0xffffffffu, maximum[half], 1));
      maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(0xffffffffu, maximum[half], 2));
      if (lane % 4 == 0) maxima[warp * kRows + lane / 4 + 8 * half] = maximum[half];
    }
    __syncthreads();
    Sums<kSize> sums;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      for (int other = 0; other < kWarps; other++)
        maximum[half] = fmaxf(maximum[half], maxima[other * kRows + lane / 4 + 8 * half]);
      const float shift = maximum[half] * p.scale;
      float mass = 0;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[0][j][2 * half + e];
          score = exp2_approximate(fmaf(score, p.scale, -shift));
          mass += score;
        }
      mass += __shfl_xor_sync(0xffffffffu, mass, 1);
      mass += __shfl_xor_sync(0xffffffffu, mass, 2);
      if (lane % 4 == 0) masses[warp * kRows + lane / 4 + 8 * half] = mass;
      sums.part[half].maximum = shift;
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; j++)
      In::Weights::put(shared + In::kWeights, 0, warp * kKeys + 8 * j, scores[0][j], lane);
    cp_async_wait<1>();
    __syncthreads();  // all threads see weights, masses and values
#pragma unroll
    for (int half = 0; half < 2; half++)
      for (int other = 0; other < kWarps; other++)
        sums.part[half].mass += masses[other * kRows + lane / 4 + 8 * half];
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t a[4];
      In::Weights::load_a(a, shared + In::kWeights, 0, k, lane);
#pragma unroll
      for (int i = 0; i < Sums<kSize>::kMine; i++) {
        const int group = warp + kWarps * i;
        if (group >= Sums<kSize>::kGroups) break;
        uint32_t b[4];
        In::Keys::load_b_by_row(b, shared + In::kValues, k, group * 16, lane);
        mma(sums.value[i][0], a, b[0], b[1]);
        mma(sums.value[i][1], a, b[2], b[3]);
      }
    }
    if (chunk < end) {
      __syncthreads();  // no thread still reads values, weights and masses
      fetch(shared + In::kValues, chunk + 1, kPageTokens);
    }
    if (!alone && shares.unit == 1) {
      leave(sums, chunk);
      continue;
    }
    section.add(sums);
    if (chunk < end && (chunk + 1) % kSection != 0) continue;
    if (alone) {
      row_sums.add(section);
    } else {
      leave(section, chunk / kSection);
      section = {};
    }
  }
  const BlockPlace here = block_of(p, shares);
  const PagedTile done = *kept;
  if (alone) {
    row_sums.each(warp, lane, [&](int half, int column, float2 x) {
      const int row = lane / 4 + 8 * half;
      if (row >= done.rows || column >= p.size) return;
      const float mass = row_sums.part[half].mass;
      *reinterpret_cast<uint32_t*>(o + element_of(p, done, here.kv_head, row) + column) =
          done.length > 0 ? round_to_bf16_pair(x.x / mass, x.y / mass) : 0;
    });
    return;
  }
  const Chunks of_all = chunks_of(keys_of(p, done));
  if (!last_block(tickets + here.pair,
                  static_cast<uint32_t>(of_all.last / shares.span - of_all.first / shares.span + 1)))
    return;
  if (shares.unit == 1) {
    combine<kSize, kSection>(o, p, shares, done, here.pair, here.kv_head, shared);
  } else {
    combine<kSize, 1>(o, p, shares, done, here.pair, here.kv_head, shared);
  }
}

template <bool kNew>
void launch_paged(Stream& stream, const Paged& p, const void* q, const NewTokens& tokens, void* cache,
                  void* o) {
  const int64_t kv_heads = p.heads / p.group,
                tiles = kNew ? int64_t{p.rows} * tiles_of_step(p) : p.tokens * p.group / kRows + p.rows;
  const int64_t chunks = std::max<int64_t>(1, (p.max_pages * kPageTokens + kChunk - 1) / kChunk);
  by_head_size(p.size, [&](auto padded) {
    constexpr int kSize = std::min<int>(padded(), 128);
    constexpr int64_t kRowBytes = kSize * sizeof(float) + sizeof(Part);
    Shares shares =
        share(tiles * kv_heads, chunks, stream.hardware.multiprocessors, !kNew && tiles >= 4 * p.rows);
    int64_t together = std::max<int64_t>(tiles, 1);  // tiles of a launch
    if (shares.blocks > 1) {
      const int64_t held = kv_heads * shares.units * kRows;  // rows of workspace for a tile
      together =
          std::clamp<int64_t>(std::min(kMaxWorkspace / (held * kRowBytes), kTickets / kv_heads), 1, together);
      shares.parts = stream.scratch.take<Part>(together * held);
      shares.sums = stream.scratch.take<float>(together * held * kSize);
    }
    // At least one block, which checks the offsets.
    for (; shares.first == 0 || shares.first < tiles; shares.first += together) {
      const int64_t blocks =
          std::max<int64_t>(std::min(together, tiles - shares.first), 1) * kv_heads * shares.blocks;
      const auto launch = [&](auto... reads) {
        stream.launch_early({reads...}, paged_bf16_kernel<kSize, kNew>, blocks, kThreads,
                            Layout<kSize>::kBytes, static_cast<const bf16*>(q), static_cast<bf16*>(cache),
                            static_cast<bf16*>(o), p, shares, tokens, stream.ticket, stream.faults);
      };
      if constexpr (kNew) {
        launch(Span{p.lengths, int64_t{p.rows} * 4}, Span{p.pages, int64_t{p.rows} * p.max_pages * 4},
               Span{cache, p.pages_held * p.elements * 2});
      } else {
        launch();
      }
    }
  });
}

}  // namespace

void attention_paged_bf16(Stream& stream, const Paged& p, const void* q, void* cache, void* o) {
  launch_paged<false>(stream, p, q, {}, cache, o);
}
void attention_step_bf16(Stream& stream, const Paged& p, const NewTokens& tokens, void* cache, void* o) {
  launch_paged<true>(stream, p, tokens.q.data, tokens, cache, o);
}

}  // namespace steptrain::cuda
