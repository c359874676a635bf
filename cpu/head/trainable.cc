// The backward of a trainable head: dx = dz·W (`=`) and dw += dzᵀ·x in f32. Rows come in groups of kGroupRows
// and, within a group, the vocabulary in spans: first dz for all rows and tokens, then both products, so dw
// is added in order of the groups. One region; scratch holds dz of one group and span, never [R, V]. Sums are
// f32; with bf16 arithmetic dz is rounded to bf16. Deterministic, whatever the thread count.
#include "cpu/head/gradients.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kGroupRows = 512;
constexpr int64_t kSpanTokens = 2048;         // dz and its transpose: 4 MiB each in f32
constexpr int64_t kScoreTokens = 4 * kPanel;  // of a span, per task of dz
template <typename C>
constexpr int64_t kOuterTokens = 8 * kTileRows<C>;  // of a span, per task of dw

/// Consecutive rounds of tasks from one phase of a region. A worker that draws a task of the next round
/// keeps it until that round.
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

/// Elements from one token to the next of the transposed dz: whole vectors and one more, so that the tokens
/// do not all fall into the same cache sets.
template <typename C>
int64_t transposed_stride(int64_t rows) {
  constexpr int64_t vector = kLanes * kGroup<C>;
  return (ceil_div(rows, vector) + 1) * vector;
}

/// to[token][row] = dz[row][token] for kLanes tokens. Rows are padded with zeros to whole vectors.
template <typename C>
void transpose_tokens(const C* dz, int64_t from_stride, int64_t rows, C* to, int64_t to_stride) {
  constexpr int64_t group = kGroup<C>;
  for (int64_t r = 0; r < rows; r += kLanes * group) {
    vu block[kLanes];
    for (int64_t i = 0; i < kLanes; i++) {
      const int64_t row = r + i * group;
      block[i] =
          row < rows ? column_units<C>(dz + row * from_stride, from_stride, kLanes, row + 1 < rows) : vu{};
    }
    transpose(block);
    for (int64_t i = 0; i < kLanes; i++) store_units(to + i * to_stride + r, block[i]);
  }
}

void prefetch_block(const float* to, int64_t rows, int64_t width, int64_t h) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < kPanel; i += 16) __builtin_prefetch(to + r * width + h + i, 1);
  }
}

/// to[r][h … h + kPanel] += block[r], within `width` columns.
void add_block(const float* block, int64_t rows, float* to, int64_t width, int64_t h) {
  for (int64_t r = 0; r < rows; r++) {
    each_vector(h, std::min(width, h + kPanel), [&](int64_t i, int lanes) {
      float* at = to + r * width + i;
      store_lanes(at, load_lanes(at, lanes) + load(block + r * kPanel + i - h), lanes);
    });
  }
}

template <typename C>
void trainable(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& dw,
               const TensorView& dx, const Gradients& gradients) {
  const int64_t R = x[0], H = w[1], V = w[0], columns = ceil_div(H, kPanel);
  const int64_t max_rows = std::min(R, kGroupRows), stride = transposed_stride<C>(max_rows);
  Scratch& s = stream.scratch;
  C* rows_of = buffer_for_rows<C>(s, x, max_rows);
  C* x_panels =
      s.take<C>(columns * panel_stride<C>(max_rows));  // x as [column panel][row], the right side of dw
  C* dz = s.take<C>(max_rows * kSpanTokens);
  C* transposed = s.take<C>(kSpanTokens * stride);
  float* sums = s.take<float>(columns * max_rows * kPanel);
  struct Workspace {
    C* panel;
    float* logits;
  };
  std::vector<Workspace> workspaces;
  for (int i = 0; i < stream.pool.threads(); i++)
    workspaces.push_back(
        {s.take<C>(panel_elements<C>(H, kSpanTokens)), s.take<float>(max_rows * kScoreTokens)});

  stream.pool.region([&](Worker& worker) {
    const Workspace& work = workspaces[static_cast<size_t>(worker.index)];
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
        scoring.run(ceil_div(span, kScoreTokens), [&](int64_t task) {
          const int64_t v0 = task * kScoreTokens, n = std::min(kScoreTokens, span - v0);
          const int64_t panels = tile_logits(w, a, rows, v + v0, n, work.panel, work.logits);
          for (int64_t r = 0; r < rows; r++) {
            gradients.row(begin + r, work.logits, panels, rows, r, v + v0, n, dz + r * kSpanTokens + v0);
          }
          for (int64_t i = 0; i < n; i += kLanes)
            transpose_tokens(dz + v0 + i, kSpanTokens, rows, transposed + (v0 + i) * stride, stride);
        });
        worker.barrier();
        columns_of_dx.run(columns, [&](int64_t h) {
          column_panel<C>(w, v, span, h * kPanel, work.panel);
          float* block = sums + h * rows * kPanel;
          multiply_rows(dz, kSpanTokens, rows, work.panel, span, block, v > 0);
          if (v + span < V) return;
          by_storage(dx.dtype, [&](auto t) {
            using X = decltype(t);
            store_block(block, rows, dx.as<X>() + begin * H, H, h * kPanel);
          });
        });
        tokens_of_dw.run(ceil_div(span, kOuterTokens<C>), [&](int64_t task) {
          const int64_t end = std::min(span, (task + 1) * kOuterTokens<C>);
          float block[kTileRows<C> * kPanel];
          for (int64_t h = 0; h < columns; h++) {
            for (int64_t v0 = task * kOuterTokens<C>; v0 < end; v0 += kTileRows<C>) {
              const int64_t n = std::min<int64_t>(kTileRows<C>, end - v0);
              float* to = dw.as<float>() + (v + v0) * H;
              prefetch_block(to, n, H, h * kPanel);
              gemm_tile<C>(static_cast<int>(n), transposed + v0 * stride, stride,
                           x_panels + h * panel_stride<C>(rows), rows, block, false);
              add_block(block, n, to, H, h * kPanel);
            }
          }
        });
        worker.barrier();
      }
    }
  });
}

}  // namespace

void head_trainable_backward(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& dw,
                             const TensorView& dx, const Gradients& gradients) {
  by_storage(x.dtype, [&](auto t) { trainable<HeadType<decltype(t)>>(stream, x, w, dw, dx, gradients); });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
