// dq, dk and dv of attention on Hopper in one kernel (see problem.h), for heads of 64 elements: five products of a tile
// instead of the seven of sm90_backward_queries.cu and sm90_backward_keys.cu. As there, sᵀ =
// k·qᵀ and dpᵀ = v·doᵀ give pᵀ and dsᵀ, from whose registers come dv += pᵀ·do and dk += dsᵀ·q. dsᵀ also goes to shared
// memory, where both consumers meet for dq = ds·k over all 128 keys, 64 of the 128 queries each; sm90_backward.cuh adds
// these. Queries of the next sequence and their do, and keys and values of the next sequence, are overwritten with
// zeros, because 0 times NaN or infinity is not 0.
#include "cuda/attention/sm90_backward.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kSize = 64;
using L = BackwardLayout<kSize>;
using Own = L::Own;
using Other = L::Other;
using Slopes = L::Slopes;
constexpr int kQueries = L::kQueries;
constexpr int kParts = kQueries / 64;

__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_backward_kernel(const __grid_constant__ Attention p,
                                   const __grid_constant__ BackwardMaps maps,
                                   const __grid_constant__ AttentionTensors t,
                                   const __grid_constant__ GroupParts parts, const Columns columns,
                                   const Sums sums, uint32_t* ticket) {
  __shared__ BackwardBarriers barriers;
  __shared__ Barrier slopes_empty;
  __shared__ TileOfColumn item;
  const L shared{aligned_shared()};
  if (threadIdx.x == 0) {
    item = draw_tile(p, columns, ticket);
    barriers.init();
    mbarrier_init(&slopes_empty, kConsumers * kGroup);
    fence_barrier_init();
  }
  __syncthreads();
  if (!item.tile.exists) return;
  const BackwardWalk block = find_walk<kSize>(p, parts, item);
  const AttentionTile tile = block.tile;
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  if (group == 0) {
    shrink_registers<40>();
    return feed(p, maps, t, sums, block, shared, barriers);
  }

  grow_registers<232>();
  const int consumer = group - 1, row = consumer * kGroupRows;
  char* const k_tile = shared.k_tile();
  char* const ds_tile = shared.ds_tile();
  // Where a lane's row of ds begins in shared memory, and its chunk, which the row permutes; see Slopes::at.
  const int slopes_row = row + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane % 16;
  uint32_t slopes_at = static_cast<uint32_t>(slopes_row * 128 + ((lane / 16 ^ slopes_row) & 7) * 16);
  const float scale = p.scale * kLog2e;
  float dk[kSize / 2] = {}, dv[kSize / 2] = {};
  RegisterFactor<32> factor_a[kParts], factor_ds[kParts];
  wait_for_keys(shared, barriers, tile);
  RingPlace<kStages> place;  // of queries, and of dq
  int32_t query = block.begin;
  for (int32_t left =
           (block.heads.end - block.heads.begin) * ((block.end - block.begin + kQueries - 1) / kQueries);
       left > 0;
       left--, query = query + kQueries < block.end ? query + kQueries : block.begin, place.advance()) {
    const int stage = place.stage;
    char *const q_tile = shared.q_tile(stage), *const do_tile = shared.do_tile(stage);
    wait_for_queries(shared, barriers, place, tile, query);
    // Rows are keys, columns are queries, 64 at a time.
    float weights[kParts][32], slopes[kParts][32];
    const auto start = [&](int part) {
      multiply_tiles<Own, Other, kSize>(weights[part], k_tile, row, q_tile + part * 64 * 128);
      multiply_tiles<Own, Other, kSize>(slopes[part], shared.v_tile(), row, do_tile + part * 64 * 128);
    };
    start(0);
    forget(slopes_at);  // so that no addresses made of it are kept
#pragma unroll
    for (int part = 0; part < kParts; part++) {
      // For the scores; behind them are these slopes, and the sums of the part before.
      if (part == 0) {
        wgmma_wait<1>();
      } else {
        wgmma_wait<3>();
      }
      pin(weights[part]);
      const float* const lse = shared.statistics(stage) + 64 * part + fragment_column(lane, 0);
      weigh(weights[part], lse, scale);
      mask(weights[part], p, tile, item, row, query + 64 * part);
      if (part == 0) {
        wgmma_wait<0>();
      } else {
        wgmma_wait<2>();
      }
      pin(slopes[part]);
      slope(slopes[part], weights[part], lse + kQueries);
      factor_a[part].round(weights[part]);
      factor_ds[part].round(slopes[part]);
      // Neither consumer reads ds of the step before any more; with two stages a step's parity is its stage.
      if (part == 0) mbarrier_wait(&slopes_empty, static_cast<uint32_t>(place.stage) ^ 1);
#pragma unroll
      for (int k = 0; k < 4; k++)
        stmatrix(ds_tile + part * Slopes::kBoxBytes + (slopes_at ^ static_cast<uint32_t>(k * 32)),
                 factor_ds[part].a[k]);
      if (part + 1 < kParts) start(part + 1);
      multiply_registers<Other>(dv, factor_a[part], do_tile + part * 64 * 128);
      multiply_registers<Other>(dk, factor_ds[part], q_tile + part * 64 * 128);
    }
    fence_proxy_async();
    // For both consumers' ds of this step.
    named_barrier_sync(kKeysBarrier);
    // Of the consumer's queries.
    float dq[32];
    const uint64_t a = matrix_descriptor(ds_tile + consumer * Slopes::kBoxBytes, Slopes::kBoxBytes),
                   b = matrix_descriptor(k_tile, Own::kBoxBytes);
    wgmma_fence();
    wgmma<true, true, true>(dq, a, b);
#pragma unroll
    for (int k = kStep; k < kRows; k += kStep) wgmma<true, true>(dq, a + k * 128 / 16, b + k * 128 / 16);
    wgmma_commit();
    wgmma_wait<1>();  // for dk and dv
    pin(dv);
    pin(dk);
#pragma unroll
    for (int part = 0; part < kParts; part++) {
      factor_a[part].pin();
      factor_ds[part].pin();
    }
    mbarrier_arrive(&barriers.empty[stage]);
    wgmma_wait<0>();
    pin(dq);
    mbarrier_arrive(&slopes_empty);
    hand_over(dq, consumer, stage, place.parity, shared, barriers);
  }
  write_keys(p, parts, t, item, shared, row, dk, dv);
}

}  // namespace

void attention_backward_sm90(Stream& stream, const Attention& p, const AttentionTensors& t,
                             const GroupParts& parts, const Columns& columns) {
  launch_backward<kSize>(stream, sm90_attention_backward_kernel, p, t, parts, columns);
}

}  // namespace steptrain::cuda
