// The rows of several experts, each with a weight of its own, cut into the tasks of one region: those without rows cost
// nothing, and few rows each are tasks enough together.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu/gemm/lora.h"
#include "cpu/indices.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Numbers 0, 1, … of tasks in several lists, one after the other.
template <typename Item>
class TaskLists {
 public:
  void add(const Item& item, int64_t tasks) {
    if (tasks == 0) return;
    items_.push_back(item);
    ends_.push_back(count() + tasks);
  }
  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  /// body(item, task in its list).
  template <typename Body>
  void at(int64_t task, const Body& body) const {
    const size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), task) - ends_.begin());
    body(items_[i], task - (i ? ends_[i - 1] : 0));
  }

 private:
  std::vector<Item> items_;
  std::vector<int64_t> ends_;
};

/// An expert with rows [first, last).
struct ExpertRows {
  int64_t expert, first, last;
  int64_t count() const { return last - first; }
};

/// Those that have rows. Throws Error(E_RANGE) where the offsets are none of `rows` rows.
inline std::vector<ExpertRows> experts_with_rows(const char* op, const TensorView& offsets, int64_t rows) {
  check_offsets(op, "offsets", offsets, rows);
  const int32_t* const at = offsets.as<const int32_t>();
  std::vector<ExpertRows> experts;
  for (int64_t e = 0; e + 1 < offsets[0]; e++)
    if (at[e] < at[e + 1]) experts.push_back({e, at[e], at[e + 1]});
  return experts;
}

/// One expert's part of a tensor [E,…,…]: a weight of any layout, or half of a pair. False where there is none.
inline TensorView of_expert(const TensorView& stack, int64_t expert) {
  if (!stack) return {};
  return stack.weight(expert * weight_bytes(stack.weight(0)));
}

/// Tasks of outputs: rows of an expert by panels of its weight.
template <typename T>
class ExpertGrid {
 public:
  /// `filled(rows)`: whether so many rows have panels packed first.
  template <typename Filled>
  ExpertGrid(const std::vector<ExpertRows>& experts, int64_t panels, int64_t depth, int threads,
             const Filled& filled) {
    const int active = static_cast<int>(experts.size()), own = active ? (threads + active - 1) / active : 1;
    for (const ExpertRows& rows : experts) {
      const Grid<T> grid(rows.count(), panels, depth, own, filled(rows.count()));
      lists_.add({rows, grid}, grid.tasks());
    }
  }
  int64_t tasks() const { return lists_.count(); }
  /// body(rows of the task, grid and number for its panels, all rows of its expert).
  template <typename Body>
  void at(int64_t task, const Body& body) const {
    lists_.at(task, [&](const Item& item, int64_t own) {
      const auto& [rows, grid] = item;
      body(ExpertRows{rows.expert, rows.first + grid.first_row(own), rows.first + grid.last_row(own)},
           grid.first_panel(own), grid.last_panel(own), rows.count());
    });
  }

 private:
  struct Item {
    ExpertRows rows;
    Grid<T> grid;
  };
  TaskLists<Item> lists_;
};

/// The low-rank rows of all experts, in a phase of the caller's region.
template <typename T>
class ExpertLowRank {
 public:
  /// As LowRank, of `adapter` [E,…,…], which the groups from `bare` on have; with `scales` [E] each `multiplied` by its own.
  ExpertLowRank(Stream& stream, const std::vector<ExpertRows>& experts, const TensorView& adapter,
                int64_t bare, const TensorView& scales, bool transposed, const TensorView& out, int64_t rows,
                float stored, float multiplied, const Dropout& dropout)
      : adapter_(adapter),
        bare_(bare),
        scales_(scales ? scales.as<const float>() : nullptr),
        multiplied_(multiplied),
        transposed_(transposed),
        rows_(stream, adapter, transposed, out, rows, stored, multiplied, dropout) {
    // A task packs the adapter for its rows.
    for (const ExpertRows& rows : experts)
      if (rows.expert >= bare) lists_.add(rows, (rows.count() + kRows - 1) / kRows);
  }
  const LowRank<T>& rows() const { return rows_; }

  /// One thread's share. A barrier must follow.
  void multiply(Worker& worker, int phase, const Rows<T>& x) const {
    for (int64_t task; (task = worker.next(phase)) < lists_.count();) {
      lists_.at(task, [&](const ExpertRows& rows, int64_t part) {
        const int64_t first = rows.first + part * kRows, last = std::min(rows.last, first + kRows);
        const int64_t pair = rows.expert - bare_;
        rows_.multiply(worker.index, x, first, last, {of_expert(adapter_, pair), transposed_},
                       scales_ ? scales_[pair] : multiplied_);
      });
    }
  }

 private:
  static constexpr int64_t kRows = 128;

  TensorView adapter_;
  int64_t bare_;
  const float* scales_;
  float multiplied_;
  bool transposed_;
  LowRank<T> rows_;
  TaskLists<ExpertRows> lists_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
