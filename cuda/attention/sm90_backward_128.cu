// As sm90_backward.cu, for heads of 128 elements and steps of 64 queries; the successor of sm90_backward_queries.cu and
// sm90_backward_keys.cu. Its consumers do not meet: dq of a step is multiplied during the next one, behind that one's
// scores, so that either consumer may be a third of a step ahead of the other and compute while the other multiplies.
// Each makes half of the head's columns of dq, of all 64 queries. ds has a place for each of two steps. Whoever writes
// ds of a step has seen the other's ds of the step before, which that one wrote after its dq of the step before
// that, so nobody reads the place any more.
//   A step is 5·128·64·128 multiply-adds, 2,560 clocks at 2,048 a clock of an H100's multiprocessor, of which both
// consumers' products read 256 KiB of shared memory; beside them 16 KiB of ds and 32 of dq are written, 32 read again,
// and 32 arrive: 368 KiB, 2,944 clocks at 128 bytes a clock. A consumer by itself takes about 2,100: scores 256,
// exponentials 400 beside dq, dp 256, ds 300, dk and dv 512, and what lies between.
#include "cuda/attention/sm90_backward.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kSize = 128;
using L = BackwardLayout<kSize>;
using Own = L::Own;
using Other = L::Other;
using Slopes = L::Slopes;
constexpr int kQueries = L::kQueries;

__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_backward_128_kernel(const __grid_constant__ Attention p,
                                       const __grid_constant__ BackwardMaps maps,
                                       const __grid_constant__ AttentionTensors t,
                                       const __grid_constant__ GroupParts parts, const Columns columns,
                                       const Sums sums, uint32_t* ticket) {
  __shared__ BackwardBarriers barriers;
  __shared__ Barrier slopes_full[kStages];
  __shared__ TileOfColumn item;
  const L shared{aligned_shared()};
  if (threadIdx.x == 0) {
    item = draw_tile(p, columns, ticket);
    barriers.init();
    for (int stage = 0; stage < kStages; stage++) mbarrier_init(&slopes_full[stage], kConsumers * kGroup);
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
  char *const k_tile = shared.k_tile(), *const v_tile = shared.v_tile();
  // Where a lane's row of ds begins in shared memory, and its chunk, which the row permutes; see Slopes::at.
  const int slopes_row = row + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane % 16;
  uint32_t slopes_at = static_cast<uint32_t>(slopes_row * 128 + ((lane / 16 ^ slopes_row) & 7) * 16);
  const float scale = p.scale * kLog2e;
  float dk[kSize / 2] = {}, dv[kSize / 2] = {};
  RegisterFactor<32> factor_a, factor_ds;
  wait_for_keys(shared, barriers, tile);
  const int32_t begin = block.begin, end = block.end;
  RingPlace<kStages> place;  // of queries, of ds, and of dq
  const auto start_dq = [&](float(&dq)[32], const RingPlace<kStages>& of) {
    mbarrier_wait(&slopes_full[of.stage], of.parity);
    const uint64_t a = matrix_descriptor(shared.ds_tile(of.stage), Slopes::kBoxBytes),
                   b = matrix_descriptor(k_tile + consumer * Own::kBoxBytes, Own::kBoxBytes);
    wgmma_fence();
    wgmma<true, true, true>(dq, a, b);
#pragma unroll
    for (int k = kStep; k < kRows; k += kStep) wgmma<true, true>(dq, a + k * 128 / 16, b + k * 128 / 16);
    wgmma_commit();
  };
  const auto end_dq = [&](float(&dq)[32], const RingPlace<kStages>& of) {
    wgmma_wait<0>();
    pin(dq);
    hand_over(dq, consumer, of.stage, of.parity, shared, barriers);
  };
  const auto place_before = [&] {
    const int stage = place.stage ^ 1;
    return RingPlace<kStages>{stage, place.parity ^ static_cast<uint32_t>(stage)};
  };
  const auto step = [&](int32_t query, auto is_first) {
    const int stage = place.stage;
    const RingPlace<kStages> before = place_before();
    wait_for_queries(shared, barriers, place, tile, query);
    // Rows are keys, columns are queries.
    float weights[32], slopes[32], dq[32];
    multiply_tiles<Own, Other, kSize>(weights, k_tile, row, shared.q_tile(stage));
    forget(slopes_at);  // so that no addresses made of it are kept
    wgmma_wait<0>();
    pin(weights);
    if constexpr (!is_first.value) start_dq(dq, before);
    const float* const lse = shared.statistics(stage) + fragment_column(lane, 0);
    weigh(weights, lse, scale);
    if constexpr (!is_first.value) end_dq(dq, before);
    mask(weights, p, tile, item, row, query);  // without dq in registers, which would be too few
    multiply_tiles<Own, Other, kSize>(slopes, v_tile, row, shared.do_tile(stage));
    wgmma_wait<0>();
    pin(slopes);
    slope(slopes, weights, lse + kQueries);
    factor_a.round(weights);
    factor_ds.round(slopes);
#pragma unroll
    for (int k = 0; k < 4; k++)
      stmatrix(shared.ds_tile(stage) + (slopes_at ^ static_cast<uint32_t>(k * 32)), factor_ds.a[k]);
    fence_proxy_async();
    mbarrier_arrive(&slopes_full[stage]);
    multiply_registers<Other>(dv, factor_a, shared.do_tile(stage));
    multiply_registers<Other>(dk, factor_ds, shared.q_tile(stage));
    wgmma_wait<0>();
    pin(dv);
    pin(dk);
    factor_a.pin();
    factor_ds.pin();
    mbarrier_arrive(&barriers.empty[stage]);
    place.advance();
  };
  int32_t query = begin;
  int32_t left = (block.heads.end - block.heads.begin) * ((end - begin + kQueries - 1) / kQueries);
  step(query, std::true_type());
  while (--left > 0) {
    query = query + kQueries < end ? query + kQueries : begin;
    step(query, std::false_type());
  }
  float dq[32];
  start_dq(dq, place_before());
  end_dq(dq, place_before());
  write_keys(p, parts, t, item, shared, row, dk, dv);
}

}  // namespace

void attention_backward_sm90_128(Stream& stream, const Attention& p, const AttentionTensors& t,
                                 const GroupParts& parts, const Columns& columns) {
  launch_backward<kSize>(stream, sm90_attention_backward_128_kernel, p, t, parts, columns);
}

}  // namespace steptrain::cuda
