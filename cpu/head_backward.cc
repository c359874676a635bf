// The language-model head, backward: dz_v = (dlogprob·([v = target] - p_v) - dentropy·p_v·(log p_v + H)) /
// temperature, from recomputed vocabulary tiles; dx = dz·W (`=`) and, for a trainable head, dw += dzᵀ·x in
// f32. A frozen head sums dx over vocabulary splits in order, as the forward does. A trainable one walks
// groups of kGroupRows rows and, in them, spans of the vocabulary, first dz of all rows, then both products,
// so that dw is added in order of the rows. Sums are f32; with bf16 arithmetic dz is rounded to bf16.
// Deterministic, whatever the thread count.
#include "cpu/families.h"
#include "cpu/head_tile.h"
#include "cpu/indices.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_head_backward(KernelTable& table);

namespace {

constexpr int64_t kGroupRows = 512;
constexpr int64_t kSpanTokens = 2048;

struct Gradients {
  const float *dlogprobs, *dentropy, *lse, *entropy;
  const int32_t* targets;
  float inverse;

  /// dz of one row of a tile, to `dz` in order of the token.
  template <typename C>
  void row(int64_t row, float* logits, int64_t panels, int64_t rows, int64_t r, int64_t v0, int64_t n,
           C* dz) const {
    const float dl = dlogprobs[row] * inverse, dh = dentropy ? dentropy[row] * inverse : 0.0f;
    const vf scale = set1(inverse), low = set1(-lse[row]), minus_dl = set1(-dl), minus_dh = set1(-dh);
    const vf entropy_of = set1(entropy[row]);
    each_logit_vector(logits, panels, rows, r, [&](int64_t v, float* z) {
      const vf logp = fma(load(z), scale, low);
      store(dz + v, exp(logp) * fma(minus_dh, logp + entropy_of, minus_dl));
    });
    if (const int64_t t = targets[row] - v0; t >= 0 && t < n) {
      const float logp = logits[(t / kPanel * rows + r) * kPanel + t % kPanel] * inverse - lse[row];
      const float p = std::exp(logp);
      dz[t] = from_float<C>(dl * (1 - p) - dh * p * (logp + entropy[row]));
    }
  }
};

template <typename C>
C* room_for_rows(Scratch& scratch, const TensorView& x, int64_t rows) {
  return sizeof(C) == static_cast<size_t>(size_of(x.dtype)) ? nullptr : scratch.take<C>(rows * x[1]);
}

template <typename C>
int64_t panel_room(int64_t features, int64_t tokens) {
  return std::max(panel_stride<C>(features), panel_stride<C>(tokens));
}

template <typename C>
void frozen(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& dx,
            const Gradients& gradients) {
  const int64_t R = x[0], H = w[1], V = w[0], width = ceil_div(H, kPanel) * kPanel;
  const Blocks blocks(R, kBlockRows, stream.pool.threads());
  const int64_t splits = ceil_div(V, kSplitTokens), most = blocks.most();
  struct Room {
    C *x, *panel, *dz;
    float *logits, *sums;
  };
  std::vector<Room> rooms;
  for (int i = 0; i < stream.pool.threads(); i++) {
    Scratch& s = stream.scratch;
    rooms.push_back({room_for_rows<C>(s, x, most), s.take<C>(panel_room<C>(H, kTileTokens)),
                     s.take<C>(most * kTileTokens), s.take<float>(most * kTileTokens),
                     s.take<float>(most * width)});
  }
  float* total = stream.scratch.take<float>(R * width);
  Turns turns(stream.scratch, blocks.count);

  stream.pool.region([&](Worker& worker) {
    const Room& room = rooms[static_cast<size_t>(worker.index)];
    for (int64_t task; (task = worker.next()) < splits * blocks.count;) {
      const int64_t split = task / blocks.count, block = task % blocks.count;
      const int64_t begin = blocks.begin(block), rows = blocks.size(block);
      const C* a = rows_as<C>(x, begin, rows, room.x);
      const int64_t first = split * kSplitTokens, end = std::min(V, first + kSplitTokens);
      for (int64_t v0 = first; v0 < end; v0 += kTileTokens) {
        const int64_t n = std::min(kTileTokens, end - v0);
        const int64_t panels = tile_logits(w, a, rows, v0, n, room.panel, room.logits);
        for (int64_t r = 0; r < rows; r++)
          gradients.row(begin + r, room.logits, panels, rows, r, v0, n, room.dz + r * kTileTokens);
        multiply_tokens(w, room.dz, kTileTokens, rows, v0, n, room.panel, room.sums, v0 > first);
      }
      turns.wait(block, split);
      float* sums = total + begin * width;
      for (int64_t i = 0; i < rows * width; i += kLanes)
        store(sums + i, split ? load(sums + i) + load(room.sums + i) : load(room.sums + i));
      if (split + 1 == splits) {
        by_storage(dx.dtype, [&](auto t) {
          using X = decltype(t);
          for (int64_t r = 0; r < rows; r++) {
            for (int64_t h = 0; h < H; h += kPanel) {
              each_vector(h, std::min(H, h + kPanel), [&](int64_t i, int lanes) {
                store_lanes(dx.as<X>() + (begin + r) * H + i, load(sums + h * rows + r * kPanel + i - h),
                            lanes);
              });
            }
          }
        });
      }
      turns.pass(block);
    }
  });
}

/// Tasks of consecutive rounds from one phase of a region: a worker that draws a task of the next round keeps
/// it.
class Rounds {
 public:
  Rounds(Worker& worker, int phase) : worker_(worker), phase_(phase), held_(worker.next(phase)) {}
  /// body(task) for tasks 0 … n of the next round.
  template <typename F>
  void run(int64_t n, F body) {
    for (; held_ < base_ + n; held_ = worker_.next(phase_)) body(held_ - base_);
    base_ += n;
  }

 private:
  Worker& worker_;
  int phase_;
  int64_t held_, base_ = 0;
};

template <typename C>
void trainable(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& dw,
               const TensorView& dx, const Gradients& gradients) {
  const int64_t R = x[0], H = w[1], V = w[0], columns = ceil_div(H, kPanel);
  const int64_t most = std::min(R, kGroupRows), pairs = packed_k<C>(most);
  Scratch& s = stream.scratch;
  C* rows_of = room_for_rows<C>(s, x, most);
  C* x_panels = s.take<C>(columns * panel_stride<C>(most));  // x as [column panel][row], the right side of dw
  C* dz = s.take<C>(most * kSpanTokens);
  C* transposed = s.take<C>(kSpanTokens * pairs);
  float* sums = s.take<float>(columns * most * kPanel);
  struct Room {
    C* panel;
    float* logits;
  };
  std::vector<Room> rooms;
  for (int i = 0; i < stream.pool.threads(); i++)
    rooms.push_back({s.take<C>(panel_room<C>(H, kSpanTokens)), s.take<float>(kBlockRows * kTileTokens)});

  stream.pool.region([&](Worker& worker) {
    const Room& room = rooms[static_cast<size_t>(worker.index)];
    Rounds packing(worker, 0), scoring(worker, 1), columns_of_dx(worker, 2), tokens_of_dw(worker, 3);
    for (int64_t begin = 0; begin < R; begin += kGroupRows) {
      const int64_t rows = std::min(kGroupRows, R - begin);
      TensorView group = x;  // the rows of this group, a matrix as column_panel reads it
      group.data = x.as<char>() + begin * H * size_of(x.dtype);
      group.shape[0] = rows;
      packing.run(columns, [&](int64_t h) {
        column_panel<C>(group, 0, rows, h * kPanel, x_panels + h * panel_stride<C>(rows));
        if (h == 0) rows_as<C>(x, begin, rows, rows_of);
      });
      worker.barrier();
      const C* a = rows_of ? rows_of : x.as<C>() + begin * H;
      for (int64_t v = 0; v < V; v += kSpanTokens) {
        const int64_t span = std::min(kSpanTokens, V - v);
        const int64_t tiles = ceil_div(span, kTileTokens), blocks = ceil_div(rows, kBlockRows);
        scoring.run(tiles * blocks, [&](int64_t task) {
          const int64_t v0 = task / blocks * kTileTokens, r0 = task % blocks * kBlockRows;
          const int64_t n = std::min(kTileTokens, span - v0), m = std::min(kBlockRows, rows - r0);
          const int64_t panels = tile_logits(w, a + r0 * H, m, v + v0, n, room.panel, room.logits);
          for (int64_t r = 0; r < m; r++) {
            C* row = dz + (r0 + r) * kSpanTokens + v0;
            gradients.row(begin + r0 + r, room.logits, panels, m, r, v + v0, n, row);
            for (int64_t i = 0; i < n; i++) transposed[(v0 + i) * pairs + r0 + r] = row[i];
          }
        });
        worker.barrier();
        columns_of_dx.run(columns, [&](int64_t h) {
          column_panel<C>(w, v, span, h * kPanel, room.panel);
          float* block = sums + h * rows * kPanel;
          multiply_rows(dz, kSpanTokens, rows, room.panel, span, block, v > 0);
          if (v + span < V) return;
          by_storage(dx.dtype, [&](auto t) {
            using X = decltype(t);
            for (int64_t r = 0; r < rows; r++) {
              each_vector(h * kPanel, std::min(H, (h + 1) * kPanel), [&](int64_t i, int lanes) {
                store_lanes(dx.as<X>() + (begin + r) * H + i, load(block + r * kPanel + i - h * kPanel),
                            lanes);
              });
            }
          });
        });
        tokens_of_dw.run(ceil_div(span, kTileRows), [&](int64_t task) {
          const int64_t v0 = task * kTileRows, n = std::min<int64_t>(kTileRows, span - v0);
          float block[kTileRows * kPanel];
          for (int64_t h = 0; h < columns; h++) {
            gemm_tile<C>(static_cast<int>(n), transposed + v0 * pairs, pairs,
                         x_panels + h * panel_stride<C>(rows), rows, block, false);
            for (int64_t i = 0; i < n; i++) {
              float* to = dw.as<float>() + (v + v0 + i) * H;
              each_vector(h * kPanel, std::min(H, (h + 1) * kPanel), [&](int64_t k, int lanes) {
                store_lanes(to + k, load_lanes(to + k, lanes) + load(block + i * kPanel + k - h * kPanel),
                            lanes);
              });
            }
          }
        });
        worker.barrier();
      }
    }
  });
}

void head_logprobs_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, dentropy, x, w, targets, lse, entropy, dw, dx] = args.tensors<9>();
  check_temperature("head_logprobs_backward", args.d(0));
  check_indices("head_logprobs_backward", "targets", targets, w[0]);
  const Gradients gradients{dlogprobs.as<float>(), dentropy.as<float>(),  lse.as<float>(),
                            entropy.as<float>(),   targets.as<int32_t>(), 1 / args.f(0)};
  by_storage(x.dtype, [&](auto t) {
    using C = HeadType<decltype(t)>;
    if (dw) {
      trainable<C>(stream, x, w, dw, dx, gradients);
    } else {
      frozen<C>(stream, x, w, dx, gradients);
    }
  });
}

}  // namespace

void register_head_backward(KernelTable& table) {
  table.set("head_logprobs_backward", head_logprobs_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
