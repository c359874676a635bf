// The language-model head, forward: of softmax(x·Wᵀ / temperature) with x [R, H] and W [V, H] the log-prob of
// each row's target, the entropy (nats), the log-sum-exp, the arg-max and, where asked, the expectation e =
// Σ_v p_v·W_v / temperature. No [R, V] is held: vocabulary tiles of fixed size go through an online softmax,
// which rescales e too, and splits of fixed size are merged in order. All outputs are `=`; sums are f32; with
// bf16 arithmetic the softmax weights of e are rounded to bf16. A row's bits depend neither on the rows
// around it nor on the thread count. head_logits writes all logits of few rows.
#include "cpu/gemm/weight.h"
#include "cpu/head/softmax.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

namespace {

void scale_row(float* sums, int64_t width, int64_t rows, int64_t r, float factor) {
  for (int64_t h = 0; h < width; h += kPanel) {
    float* row = sums + h * rows + r * kPanel;
    for (int64_t i = 0; i < kPanel; i += kLanes) store(row + i, load(row + i) * set1(factor));
  }
}

/// e = (keep·e + factor·sums)·norm for row r of a block. Where keep is 0, e is not read.
void merge_row(const float* sums, int64_t rows, int64_t r, float keep, float factor, float norm, float* e,
               int64_t width) {
  for (int64_t h = 0; h < width; h += kPanel) {
    const float* from = sums + h * rows + r * kPanel;
    each_vector(h, std::min(width, h + kPanel), [&](int64_t i, int lanes) {
      vf value = load(from + i - h) * set1(factor);
      if (keep != 0) value = fma(set1(keep), load_lanes(e + i, lanes), value);
      store_lanes(e + i, value * set1(norm), lanes);
    });
  }
}

/// The workspace of one thread. Sums over tokens are [column panel][row][kPanel].
template <typename C>
struct Workspace {
  C *x, *panel, *weights;
  float *logits, *sums;
  RowState* states;
};

template <typename C>
class Logprobs {
 public:
  Logprobs(Stream& stream, const Args& args)
      : x_(args.tensor[0]),
        w_(valued(args.tensor[1], x_.dtype)),
        expectation_(args.tensor[7]),
        targets_(args.tensor[2].as<int32_t>()),
        args_(args),
        inverse_(1 / args.f(0)),
        splits_(ceil_div(w_[0], kSplitTokens)),
        blocks_(x_[0], block_rows<C>(w_), splits_, stream.pool.threads()),
        turns_(stream.scratch, blocks_.count),
        totals_(stream.scratch.take<RowState>(x_[0])) {
    std::fill(totals_, totals_ + x_[0], RowState{});
    Scratch& s = stream.scratch;
    const int64_t max_rows = blocks_.max_size(), H = w_[1];
    for (int i = 0; i < stream.pool.threads(); i++)
      workspaces_.push_back(
          {buffer_for_rows<C>(s, x_, max_rows), s.take<C>(panel_elements<C>(H, kTileTokens)),
           expectation_ ? s.take<C>(max_rows * kTileTokens) : nullptr, s.take<float>(max_rows * kTileTokens),
           expectation_ ? s.take<float>(max_rows * padded(H)) : nullptr, s.take<RowState>(max_rows)});
  }

  void run(Worker& worker) {
    const Workspace<C>& work = workspaces_[static_cast<size_t>(worker.index)];
    for (int64_t task; (task = worker.next()) < splits_ * blocks_.count;) {
      const int64_t split = task / blocks_.count, block = task % blocks_.count;
      score(work, split, blocks_.begin(block), blocks_.size(block));
      turns_.wait(block, split);
      merge(work, split, blocks_.begin(block), blocks_.size(block));
      turns_.pass(block);
    }
  }

 private:
  /// One split of the vocabulary for one block of rows.
  void score(const Workspace<C>& work, int64_t split, int64_t begin, int64_t rows) const {
    const C* a = rows_as<C>(x_, begin, rows, work.x);
    std::fill(work.states, work.states + rows, RowState{});
    const int64_t first = split * kSplitTokens, end = std::min(w_[0], first + kSplitTokens);
    for (int64_t v0 = first; v0 < end; v0 += kTileTokens) {
      const int64_t n = std::min(kTileTokens, end - v0);
      const int64_t panels = tile_logits(w_, a, rows, v0, n, work.panel, work.logits);
      for (int64_t r = 0; r < rows; r++) {
        RowState& state = work.states[r];
        const int64_t target = targets_[begin + r] - v0;
        if (target >= 0 && target < n) state.target = logit_at(work.logits, rows, r, target);
        const float factor = state.raise(work.logits, panels, rows, r, v0, inverse_);
        if (factor != 1 && expectation_ && v0 > first) scale_row(work.sums, w_[1], rows, r, factor);
        C* weights = expectation_ ? work.weights + r * kTileTokens : nullptr;
        state.add(work.logits, panels, rows, r, inverse_, weights);
      }
      if (expectation_)
        multiply_tokens(w_, work.weights, kTileTokens, rows, v0, n, work.panel, work.sums, v0 > first);
    }
  }

  void merge(const Workspace<C>& work, int64_t split, int64_t begin, int64_t rows) const {
    const bool last = split + 1 == splits_;
    for (int64_t r = 0; r < rows; r++) {
      RowState& total = totals_[begin + r];
      const auto [keep, factor] = total.merge(work.states[r]);
      if (expectation_)
        merge_row(work.sums, rows, r, split ? keep : 0, factor, last ? inverse_ / total.mass : 1,
                  expectation_.as<float>() + (begin + r) * w_[1], w_[1]);
      if (last) finish(begin + r, total);
    }
  }

  void finish(int64_t row, const RowState& total) const {
    args_.tensor[3].as<float>()[row] = total.target * inverse_ - total.shift - total.log_sum();
    args_.tensor[4].as<float>()[row] = total.entropy();
    args_.tensor[5].as<float>()[row] = total.shift + total.log_sum();
    args_.tensor[6].as<int32_t>()[row] = total.argmax;
  }

  const TensorView& x_;
  const TensorView w_;
  const TensorView& expectation_;
  const int32_t* targets_;
  const Args& args_;
  float inverse_;
  int64_t splits_;
  Blocks blocks_;
  Turns turns_;
  RowState* totals_;
  std::vector<Workspace<C>> workspaces_;
};

void head_logprobs(Stream& stream, const Args& args) {
  const auto [x, w, targets] = args.tensors<3>();
  check_temperature("head_logprobs", args.d(0));
  check_indices("head_logprobs", "targets", targets, w[0]);
  by_storage(x.dtype, [&](auto t) {
    Logprobs<HeadType<decltype(t)>> logprobs(stream, args);
    stream.pool.region([&](Worker& worker) { logprobs.run(worker); });
  });
}

/// A task is a range of the vocabulary and goes through all rows.
template <typename C>
void logits(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& out, float inverse) {
  const int64_t R = x[0], H = w[1], V = w[0], threads = stream.pool.threads();
  C* converted = buffer_for_rows<C>(stream.scratch, x, threads * std::min(R, kBlockRows<C>));
  C* panels = stream.scratch.take<C>(threads * panel_stride<C>(H));
  const Panels<C> weight(w, false);
  const bool decodes = weight.decodes(R);
  stream.pool.region([&](Worker& worker) {
    C* panel = panels + worker.index * panel_stride<C>(H);
    C* buffer = converted ? converted + worker.index * std::min(R, kBlockRows<C>) * H : nullptr;
    for (int64_t task; (task = worker.next()) < ceil_div(V, kTileTokens);) {
      const int64_t first = task * kTileTokens, end = std::min(V, first + kTileTokens);
      const C* const after =
          in_place<C>(w) ? w.as<C>() + ceil_div(end, kPanel) * panel_stride<C>(H) : nullptr;
      each_block<C>(0, R, H, [&](int64_t begin, int64_t rows) {
        const C* a = rows_as<C>(x, begin, rows, buffer);
        for (int64_t v = first; v < end; v += kPanel) {
          alignas(64) float block[kBlockRows<C> * kTileStride];
          if (decodes) {
            weight.multiply_decoded(static_cast<int>(rows), a, H, v / kPanel, block);
          } else {
            const C* right = token_panel<C>(w, v, panel);
            if (v + kPanel < end) prefetch_tokens(w, v + kPanel);
            gemm_block<C>(rows, {a, H}, right, H, block, begin == 0 ? after : nullptr, false);
          }
          for (int64_t i = 0; i < rows * kPanel; i += kLanes)
            store(block + i, load(block + i) * set1(inverse));
          store_block(block, rows, out.as<float>() + begin * V, V, v);
        }
      });
    }
  });
}

void head_logits(Stream& stream, const Args& args) {
  const auto [x, w, out] = args.tensors<3>();
  check_temperature("head_logits", args.d(0));
  const TensorView weight = valued(w, x.dtype);
  by_storage(x.dtype, [&](auto t) { logits<HeadType<decltype(t)>>(stream, x, weight, out, 1 / args.f(0)); });
}

}  // namespace

void register_head_logprobs(KernelTable& table) {
  table.set("head_logprobs", head_logprobs);
  table.set("head_logits", head_logits);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
