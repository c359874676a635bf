// The language-model head, forward: of softmax(x·Wᵀ / temperature) with x [R, H] and W [V, H] the log-prob of
// each row's target, the entropy (nats), the log-sum-exp, the arg-max and, where asked, the expectation
// e = Σ_v p_v·W_v / temperature. [R, V] is never held: vocabulary tiles of fixed size go through an online
// softmax (running shift, Σ exp, Σ exp·(z - shift), and e rescaled with the shift), splits of fixed size are
// merged in order. All outputs are `=`; sums are f32; with bf16 arithmetic the softmax weights of e are
// rounded to bf16. A row's bits depend neither on the rows around it nor on the thread count.
#include <cmath>
#include <thread>

#include "cpu/families.h"
#include "cpu/head_tile.h"
#include "cpu/indices.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_head_backward(KernelTable& table);
void register_head_select(KernelTable& table);

namespace {

/// The shift of the online softmax follows the maximum only when it falls this far behind: e^8 times the sums
/// loses nothing in f32 and saves rescaling.
constexpr float kSlack = 8.0f;

/// Online softmax of one row.
struct RowState {
  float shift;     // subtracted from every scaled logit
  float sum;       // Σ exp(z - shift)
  float weighted;  // Σ exp(z - shift)·(z - shift)
  float largest;   // greatest unscaled logit
  int32_t argmax;
  float target;  // unscaled logit of the target

  /// Moves the shift; returns the factor of all that was summed.
  float rebase(float to) {
    const float factor = std::exp(shift - to);
    weighted = factor * (weighted + (shift - to) * sum);
    sum *= factor;
    shift = to;
    return factor;
  }
};

void scale_row(float* sums, int64_t width, int64_t rows, int64_t r, float factor) {
  for (int64_t h = 0; h < width; h += kPanel) {
    float* row = sums + h * rows + r * kPanel;
    for (int64_t i = 0; i < kPanel; i += kLanes) store(row + i, load(row + i) * set1(factor));
  }
}

/// Takes one tile of logits into a row's state; writes exp(z - shift) to `weights` where asked.
template <typename C>
void update(RowState& state, float* logits, int64_t panels, int64_t rows, int64_t r, int64_t v0,
            float inverse, C* weights, float* sums, int64_t width) {
  vf most = set1(kNever);
  each_logit_vector(logits, panels, rows, r, [&](int64_t, float* z) { most = max(most, load(z)); });
  const float largest = max(most);
  if (largest > state.largest) {
    state.largest = largest;
    bool found = false;
    for (int64_t v = 0; v < panels * kPanel && !found; v++) {
      found = logits[(v / kPanel * rows + r) * kPanel + v % kPanel] == largest;
      if (found) state.argmax = static_cast<int32_t>(v0 + v);
    }
  }
  if (largest * inverse > state.shift + kSlack) {
    const float factor = state.rebase(largest * inverse);
    if (sums) scale_row(sums, width, rows, r, factor);
  }
  const vf scale = set1(inverse), shift = set1(state.shift);
  vf sum_of = zero(), weighted = zero();
  each_logit_vector(logits, panels, rows, r, [&](int64_t v, float* z) {
    const vf distance = fma(load(z), scale, zero() - shift);
    const vf p = exp(distance);
    sum_of = sum_of + p;
    weighted = fma(p, distance, weighted);
    if (weights) store(weights + v, p);
  });
  state.sum += sum(sum_of);
  state.weighted += sum(weighted);
}

template <typename C>
void logprobs(Stream& stream, const Args& args) {
  const auto [x, w, targets, out, entropy, lse, argmax, expectation] = args.tensors<8>();
  const int64_t R = x[0], H = w[1], V = w[0], width = ceil_div(H, kPanel) * kPanel;
  const float inverse = 1 / args.f(0);
  const int64_t splits = ceil_div(V, kSplitTokens);
  const Blocks blocks(R, block_rows<C>(w), splits, stream.pool.threads());
  const int64_t most = blocks.most();

  struct Room {
    C *x, *panel, *weights;
    float *logits, *sums;
    RowState* state;
  };
  std::vector<Room> rooms;
  for (int i = 0; i < stream.pool.threads(); i++) {
    Scratch& s = stream.scratch;
    rooms.push_back({room_for_rows<C>(s, x, most), s.take<C>(panel_room<C>(H, kTileTokens)),
                     expectation ? s.take<C>(most * kTileTokens) : nullptr, s.take<float>(most * kTileTokens),
                     expectation ? s.take<float>(most * width) : nullptr, s.take<RowState>(most)});
  }
  RowState* total = stream.scratch.take<RowState>(R);
  Turns turns(stream.scratch, blocks.count);
  const int32_t* target = targets.as<int32_t>();

  stream.pool.region([&](Worker& worker) {
    const Room& room = rooms[static_cast<size_t>(worker.index)];
    for (int64_t task; (task = worker.next()) < splits * blocks.count;) {
      const int64_t split = task / blocks.count, block = task % blocks.count;
      const int64_t begin = blocks.begin(block), rows = blocks.size(block);
      const C* a = rows_as<C>(x, begin, rows, room.x);
      const RowState empty{kNever, 0, 0, -INFINITY, 0, 0};
      std::fill(room.state, room.state + rows, empty);
      bool first = true;
      const int64_t end = std::min(V, (split + 1) * kSplitTokens);
      for (int64_t v0 = split * kSplitTokens; v0 < end; v0 += kTileTokens) {
        const int64_t n = std::min(kTileTokens, end - v0);
        const int64_t panels = tile_logits(w, a, rows, v0, n, room.panel, room.logits);
        for (int64_t r = 0; r < rows; r++) {
          RowState& state = room.state[r];
          if (const int64_t t = target[begin + r] - v0; t >= 0 && t < n)
            state.target = room.logits[(t / kPanel * rows + r) * kPanel + t % kPanel];
          update<C>(state, room.logits, panels, rows, r, v0, inverse,
                    expectation ? room.weights + r * kTileTokens : nullptr, first ? nullptr : room.sums,
                    width);
        }
        if (expectation)
          multiply_tokens(w, room.weights, kTileTokens, rows, v0, n, room.panel, room.sums, !first);
        first = false;
      }

      turns.wait(block, split);
      const bool last = split + 1 == splits;
      for (int64_t r = 0; r < rows; r++) {
        RowState& all = total[begin + r];
        RowState& part = room.state[r];
        float keep = 0, factor = 1;  // of what was summed before, of this split
        if (split == 0) {
          all = part;
        } else {
          if (part.shift > all.shift) {
            keep = all.rebase(part.shift);
          } else {
            keep = 1;
            factor = part.rebase(all.shift);
          }
          all.sum += part.sum;
          all.weighted += part.weighted;
          if (part.largest > all.largest) {
            all.largest = part.largest;
            all.argmax = part.argmax;
          }
          if (target[begin + r] >= split * kSplitTokens && target[begin + r] < end) all.target = part.target;
        }
        if (expectation) {
          const float norm = last ? inverse / all.sum : 1;
          float* e = expectation.template as<float>() + (begin + r) * H;
          for (int64_t h = 0; h < H; h += kPanel) {
            const float* from = room.sums + h * rows + r * kPanel;
            each_vector(h, std::min(H, h + kPanel), [&](int64_t i, int lanes) {
              vf value = load(from + (i - h)) * set1(factor);
              if (split > 0) value = fma(set1(keep), load_lanes(e + i, lanes), value);
              store_lanes(e + i, value * set1(norm), lanes);
            });
          }
        }
        if (last) {
          const float log_sum = std::log(all.sum);
          out.template as<float>()[begin + r] = all.target * inverse - all.shift - log_sum;
          entropy.template as<float>()[begin + r] = log_sum - all.weighted / all.sum;
          lse.template as<float>()[begin + r] = all.shift + log_sum;
          argmax.template as<int32_t>()[begin + r] = all.argmax;
        }
      }
      turns.pass(block);
    }
  });
}

void head_logprobs(Stream& stream, const Args& args) {
  const auto [x, w, targets] = args.tensors<3>();
  check_temperature("head_logprobs", args.d(0));
  check_indices("head_logprobs", "targets", targets, w[0]);
  by_storage(x.dtype, [&](auto t) { logprobs<HeadType<decltype(t)>>(stream, args); });
}

/// logits[R, V] of few rows: tasks are ranges of the vocabulary.
template <typename C>
void logits(Stream& stream, const Args& args) {
  const auto [x, w, out] = args.tensors<3>();
  const int64_t R = x[0], H = w[1], V = w[0], step = kTileTokens;
  const int64_t most = std::min(R, kBlockRows), threads = stream.pool.threads();
  const bool convert = sizeof(C) != static_cast<size_t>(size_of(x.dtype));
  const vf inverse = set1(1 / args.f(0));
  C* converted = convert ? stream.scratch.take<C>(threads * most * H) : nullptr;
  C* panels = stream.scratch.take<C>(threads * panel_stride<C>(H));
  float* products = stream.scratch.take<float>(threads * most * kPanel);
  stream.pool.region([&](Worker& worker) {
    C* room = panels + worker.index * panel_stride<C>(H);
    float* block = products + worker.index * most * kPanel;
    for (int64_t task; (task = worker.next()) < ceil_div(V, step);) {
      for (int64_t begin = 0; begin < R; begin += kBlockRows) {
        const int64_t rows = std::min(kBlockRows, R - begin);
        const C* a = rows_as<C>(x, begin, rows, convert ? converted + worker.index * most * H : nullptr);
        for (int64_t v = task * step; v < std::min(V, (task + 1) * step); v += kPanel) {
          multiply_rows(a, H, rows, token_panel<C>(w, v, room), H, block, false);
          for (int64_t r = 0; r < rows; r++) {
            float* to = out.template as<float>() + (begin + r) * V;
            each_vector(v, std::min(V, v + kPanel), [&](int64_t i, int lanes) {
              store_lanes(to + i, load(block + r * kPanel + i - v) * inverse, lanes);
            });
          }
        }
      }
    }
  });
}

void head_logits(Stream& stream, const Args& args) {
  check_temperature("head_logits", args.d(0));
  by_storage(args.tensor[0].dtype, [&](auto t) { logits<HeadType<decltype(t)>>(stream, args); });
}

}  // namespace

void register_head(KernelTable& table) {
  table.set("head_logprobs", head_logprobs);
  table.set("head_logits", head_logits);
  register_head_backward(table);
  register_head_select(table);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
