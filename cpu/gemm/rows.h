// The left side of a GEMM: rows of x in the dtype that the register tile multiplies. They are read in place
// where possible; otherwise all threads copy them (to convert them, or to change the stride where rows fall into one set of
// the L1 cache that are too many for it) as the region starts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/gemm/block.h"
#include "cpu/gemm/units.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Rows of x that should stay in the L2 cache while panels pass.
constexpr int64_t kResidentBytes = int64_t{1} << 20;

/// Most rows of which each widens what it multiplies.
template <typename T>
constexpr int kFewRows = std::max(kTileRows<T>, 7);

/// The sum of x over each block of `block` features, a multiple of kLanes.
template <typename T>
void block_sums(const T* x, int64_t k, int64_t block, float* sums) {
  for (int64_t first = 0; first < k; first += block) {
    vf total = zero();
    for (int64_t i = first; i < first + block; i += kLanes) total = total + load(x + i);
    sums[first / block] = sum(total);
  }
}

/// Rows of x[rows, depth] as T.
template <typename T>
class Rows {
 public:
  /// `summed`: the sums over blocks of so many features are made too (cpu/gemm/scaled.h); 0: none. `whole`: blocks are of whole
  /// tiles from row 0 on, as tile order has them.
  Rows(Scratch& scratch, const TensorView& x, int64_t summed = 0, bool whole = true)
      : x_(x), summed_(summed) {
    const bool is_same = x.dtype == (sizeof(T) == 2 ? DType::bf16 : DType::f32);
    if constexpr (kOrders<T>)
      if (is_same && (whole || kWidens<T>)&&pays_to_order(x))
        ordered_ = scratch.take<T>(Left<T>::ordered_size(x[0], x[1]));
    in_place_ = is_same && (ordered_ || !aliases<T>(x[1]) || fits_aliased(x[0]));
    stride_ = in_place_ ? x[1] : row_stride<T>(x[1]);
    data_ = in_place_ ? x.as<T>() : scratch.take<T>(x[0] * stride_);
    if (summed) sums_ = scratch.take<float>(x[0] * (x[1] / summed));
  }

  /// Whether copy() has nothing to do.
  bool in_place() const { return in_place_ && !ordered_ && !sums_; }
  const T* row(int64_t t) const { return data_ + t * stride_; }
  int64_t stride() const { return stride_; }
  /// Of row t over its blocks, those of the next row behind them.
  const float* sums(int64_t t) const { return sums_ ? sums_ + t * (x_[1] / summed_) : nullptr; }
  /// For gemm_block, from row t on, which begins a tile.
  Left<T> left(int64_t t) const {
    if constexpr (kOrders<T>)
      if (ordered_) return Left<T>::ordered(ordered_, x_[1], t);
    return {row(t), stride_};
  }
  /// Likewise of a block of `count` rows. So few of many are not worth widening a panel.
  Left<T> left(int64_t t, int64_t count) const {
    if (kWidens<T> && count <= kFewRows<T>) return {row(t), stride_};
    return left(t);
  }

  /// One thread's share of the copy. A barrier must follow.
  void copy(Worker& worker, int phase) const {
    constexpr int64_t rows = 32;
    for (int64_t t; (t = worker.next(phase) * rows) < x_[0];) {
      for (int64_t i = t; i < std::min(t + rows, x_[0]); i++) {
        if constexpr (kOrders<T>) {
          if (ordered_) {
            Left<T>::order_row(row(i), x_[1], ordered_, i);
            continue;
          }
        }
        if (!in_place_) x_.dtype == DType::bf16 ? copy_row<bf16>(i) : copy_row<float>(i);
        if (sums_) block_sums(row(i), x_[1], summed_, sums_ + i * (x_[1] / summed_));
      }
    }
  }

 private:
  /// Several tiles, read again from the L2 cache for every panel. Of more rows the copy costs what it saves, and of few what
  /// widening does.
  static bool pays_to_order(const TensorView& x) {
    if (kWidens<T>) return x[0] > kFewRows<T>;
    return x[0] > kTileRows<T> && x[0] <= kBlockRows<T> && x.numel() * int64_t{sizeof(T)} <= kResidentBytes;
  }
  /// Whether rows that alias are read in place. Few are copied: short tiles would read each panel once more.
  static bool fits_aliased(int64_t rows) {
    if (rows <= std::max(kAliasedRows<T>, 4) || kTileRows<T> <= kAliasedRows<T>) return true;
    return kAliasedRows<T> > 0 && rows > 8 * kTileRows<T>;
  }

  template <typename S>
  void copy_row(int64_t t) const {
    const S* from = x_.as<const S>() + t * x_[1];
    T* to = data_ + t * stride_;
    each_vector(x_[1], [&](int64_t k, auto... n) { store(to + k, load(from + k, n...), n...); });
  }

  const TensorView& x_;
  bool in_place_;
  int64_t stride_;
  T* data_;
  T* ordered_ = nullptr;  // the copy in tile order
  int64_t summed_;
  float* sums_ = nullptr;
};

/// out[i] = x[first + i] of a vector of either dtype.
inline void to_floats(const TensorView& x, int64_t first, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) {
    out[i] = x.dtype == DType::bf16 ? to_float(x.as<bf16>()[first + i]) : x.as<float>()[first + i];
  }
}

/// out[j·out_stride + i] = x[i·stride + j] for i < rows, j < columns, in T: the left side of products that
/// sum over rows. Writes up to row_stride<T>(rows) elements of each row of out, zeros past `rows`.
template <typename T, typename S>
void transpose_rows(const S* x, int64_t stride, int64_t rows, int64_t columns, T* out, int64_t out_stride) {
  constexpr int64_t group = kGroup<T>;
  for (int64_t j = 0; j < columns; j += kLanes) {
    for (int64_t i = 0; i < rows; i += kLanes * group) {
      vu block[kLanes];
      for (int64_t d = 0; d < kLanes; d++) {
        const int64_t row = i + d * group;
        block[d] =
            row < rows ? column_units<T>(x + row * stride + j, stride, columns - j, row + 1 < rows) : vu{};
      }
      transpose(block);
      for (int64_t d = 0; d < std::min<int64_t>(kLanes, columns - j); d++) {
        store_units(out + (j + d) * out_stride + i, block[d]);
      }
    }
  }
}

/// Cuts rows × panels of outputs into tasks of a run of panels by one block of rows, all panels of a block first.
/// With several blocks a run is one panel, which stays in the L2 cache (K = 4096 in bf16: 256 KiB) while the tiles of
/// the block are multiplied by it; with AMX, whose tiles wait for nothing else, the block's rows should stay there too. With one block, every panel that is read in place comes once from memory, which is
/// fastest in long runs: as many of the same length for each thread as can be, the longer ones first. Where all panels stay in
/// the L2 cache a task takes all of them by a few tiles of rows, which come once from memory.
template <typename T>
struct Grid {
  /// Of a block, where each task packs its panels first.
  static constexpr int64_t kMostRows = 163 * kTileRows<T>;

  int64_t rows, panels, block, blocks, runs;
  /// Whether all panels stay in the L2 cache.
  bool resident = false;

  /// `filled`: each task packs its panels first, which pays off only for many rows: blocks are larger, and fewer for a thread.
  /// `may_stay`: panels are read as they lie, so that a task may go over all of them. A LoRA pair's are made by each task.
  Grid(int64_t rows, int64_t panels, int64_t depth, int threads, bool filled, bool may_stay = false)
      : rows(rows), panels(panels) {
    int64_t max_rows = (filled ? 108 : 36) * kTileRows<T>;
    if (kSteps < T >> kGroup<T> && !filled)
      max_rows =
          std::clamp<int64_t>(kResidentBytes / (std::max<int64_t>(depth, 1) * sizeof(T)), 128, max_rows);
    const int64_t min_rows = filled ? 18 * kTileRows<T> : 4 * kTileRows<T>;
    const int64_t wanted = ((filled ? 8 : 16) * threads + panels - 1) / std::max<int64_t>(panels, 1);
    blocks = std::max<int64_t>((rows + max_rows / 2) / max_rows, std::min(wanted, rows / min_rows));
    blocks = std::max<int64_t>(blocks, 1);
    block = ((rows + blocks - 1) / blocks + kTileRows<T> - 1) / kTileRows<T> * kTileRows<T>;
    blocks = block ? (rows + block - 1) / block : 0;
    runs = blocks == 1 && !filled ? std::min<int64_t>(panels, 4 * threads) : panels;
    // A panel that stays in the L1 cache is multiplied by more rows at a time instead.
    const int64_t panel_bytes = kPanel * depth * int64_t{sizeof(T)};
    if (!may_stay || filled || kSteps < T >> kGroup<T> || panel_bytes <= 32768) return;
    if (panels * panel_bytes > kResidentBytes / 2) return;
    const int64_t few = std::clamp<int64_t>(rows / (8 * threads * kTileRows<T>), 1, 4) * kTileRows<T>;
    const int64_t cut = (rows + few - 1) / few;
    if (cut < 8 * threads) return;
    resident = true;
    block = few;
    blocks = cut;
    runs = 1;
  }
  int64_t tasks() const { return blocks * runs; }
  int64_t first_panel(int64_t task) const {
    const int64_t run = task % runs;
    return run * (panels / runs) + std::min(run, panels % runs);
  }
  int64_t last_panel(int64_t task) const {
    const int64_t run = task % runs;
    return first_panel(task) + panels / runs + (run < panels % runs);
  }
  int64_t first_row(int64_t task) const { return task / runs * block; }
  int64_t last_row(int64_t task) const { return std::min(rows, first_row(task) + block); }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
