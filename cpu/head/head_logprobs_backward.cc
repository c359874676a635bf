// The language-model head, backward: the gradient dz of the logits (cpu/head/gradients.h) from recomputed
// vocabulary tiles, dx = dz·W (`=`) and, for a trainable head, dw += dzᵀ·x (cpu/head/trainable.cc). dx is
// summed over vocabulary splits in the order of the forward; sums are f32; with bf16 arithmetic dz is rounded
// to bf16. Deterministic, whatever the thread count.
#include "cpu/head/gradients.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

namespace {

template <typename C>
void frozen(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& dx,
            const Gradients& gradients) {
  const int64_t R = x[0], H = w[1], V = w[0], width = padded(H);
  const int64_t splits = ceil_div(V, kSplitTokens);
  const Blocks blocks(R, block_rows<C>(w), splits, stream.pool.threads());
  const int64_t max_rows = blocks.max_size();
  struct Workspace {
    C *x, *panel, *dz;
    float *logits, *sums;
  };
  std::vector<Workspace> workspaces;
  for (int i = 0; i < stream.pool.threads(); i++) {
    Scratch& s = stream.scratch;
    workspaces.push_back({buffer_for_rows<C>(s, x, max_rows), s.take<C>(panel_elements<C>(H, kTileTokens)),
                          s.take<C>(max_rows * kTileTokens), s.take<float>(max_rows * kTileTokens),
                          s.take<float>(max_rows * width)});
  }
  float* total = stream.scratch.take<float>(R * width);
  Turns turns(stream.scratch, blocks.count);

  stream.pool.region([&](Worker& worker) {
    const Workspace& work = workspaces[static_cast<size_t>(worker.index)];
    for (int64_t task; (task = worker.next()) < splits * blocks.count;) {
      const int64_t split = task / blocks.count, block = task % blocks.count;
      const int64_t begin = blocks.begin(block), rows = blocks.size(block);
      const C* a = rows_as<C>(x, begin, rows, work.x);
      const int64_t first = split * kSplitTokens, end = std::min(V, first + kSplitTokens);
      for (int64_t v0 = first; v0 < end; v0 += kTileTokens) {
        const int64_t n = std::min(kTileTokens, end - v0);
        const int64_t panels = tile_logits(w, a, rows, v0, n, work.panel, work.logits);
        for (int64_t r = 0; r < rows; r++)
          gradients.row(begin + r, work.logits, panels, rows, r, v0, n, work.dz + r * kTileTokens);
        multiply_tokens(w, work.dz, kTileTokens, rows, v0, n, work.panel, work.sums, v0 > first);
      }
      turns.wait(block, split);
      float* sums = total + begin * width;
      for (int64_t i = 0; i < rows * width; i += kLanes)
        store(sums + i, split ? load(sums + i) + load(work.sums + i) : load(work.sums + i));
      if (split + 1 == splits) {
        by_storage(dx.dtype, [&](auto t) {
          using X = decltype(t);
          for (int64_t h = 0; h < H; h += kPanel)
            store_block(sums + h * rows, rows, dx.as<X>() + begin * H, H, h);
        });
      }
      turns.pass(block);
    }
  });
}

void head_logprobs_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, dentropy, x, w, targets, lse, entropy, dw, dx] = args.tensors<9>();
  check_temperature("head_logprobs_backward", args.d(0));
  check_indices("head_logprobs_backward", "targets", targets, w[0]);
  const Gradients gradients{dlogprobs.as<float>(), dentropy.as<float>(),  lse.as<float>(),
                            entropy.as<float>(),   targets.as<int32_t>(), 1 / args.f(0)};
  const TensorView weight = valued(w, x.dtype);
  if (dw) return head_trainable_backward(stream, x, weight, dw, dx, gradients);
  by_storage(x.dtype, [&](auto t) { frozen<HeadType<decltype(t)>>(stream, x, weight, dx, gradients); });
}

}  // namespace

void register_head_logprobs_backward(KernelTable& table) {
  table.set("head_logprobs_backward", head_logprobs_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
