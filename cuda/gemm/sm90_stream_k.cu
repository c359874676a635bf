// Products on Hopper whose last tiles blocks share (cuda/gemm/stream_k.cuh).
#include "cuda/gemm/sm90_tiles.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {
namespace hopper {
namespace {

constexpr int64_t kHandOver = 6500;  // clocks: a tile's sums, 128 KiB, left and taken over, and the ticket

/// The plan without workspace, of as many blocks as multiprocessors. Without tiles where they are less than one for each,
/// wide ones counted.
StreamK plan_of(const Product& p, int blocks) {
  constexpr int kColumns = kWide.columns;
  StreamK plan;
  const auto down = static_cast<int>((p.rows + kRows - 1) / kRows),
             left = static_cast<int>(p.columns % kColumns);
  const bool has_half = left > 0 && left <= kColumns / 2;
  plan.across = static_cast<int>(p.columns / kColumns) + (left > kColumns / 2 ? 1 : 0);
  plan.wide = plan.across * down;
  const int halves = 2 * plan.wide + (has_half ? down : 0);
  if (plan.across == 0 || halves < 2 * blocks) return {};
  plan.all = plan.wide + (has_half ? down : 0);
  plan.alone = std::min(halves / (2 * blocks) - 1, plan.wide / blocks) * blocks;
  plan.rounds = static_cast<int>(rounds_of(p));
  return plan;
}

}  // namespace

bool multiply_stream_k(Stream& stream, Layout layout, const Product& p, int64_t clocks) {
  const int blocks = stream.hardware.multiprocessors;
  const int64_t most = tile_count(p, kRows, kNarrow.columns) * rounds_of(p) * blocks;
  if (most > INT32_MAX || 1 + blocks * kConsumers > kTickets || rounds_of(p) < 2 * StreamK::kLeast)
    return false;
  StoreShared epilogue;
  StreamK& plan = epilogue.plan = plan_of(p, blocks);
  const int64_t all = plan.wide * kWide.of(plan.rounds) + (plan.all - plan.wide) * kNarrow.of(plan.rounds);
  // What is gained must be more than what the estimate is wrong by.
  if (plan.all == 0 || (all / blocks + kHandOver) * 100 > clocks * 97) return false;
  plan.sums = stream.scratch.take<float4>(int64_t{blocks} * kConsumers * StreamK::kGroupSums * kGroup);
  plan.tickets = stream.ticket, plan.left = stream.ticket + 1;
  if (layout == Layout::forward) {
    launch_tiles<Layout::forward, kWide.columns, false>(stream, p, epilogue);
  } else if (layout == Layout::input) {
    launch_tiles<Layout::input, kWide.columns, false>(stream, p, epilogue);
  } else {
    launch_tiles<Layout::weight, kWide.columns, false>(stream, p, epilogue);
  }
  return true;
}

}  // namespace hopper
}  // namespace steptrain::cuda
