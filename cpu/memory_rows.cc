// Rows by index: gather_rows y[r] = x[rows[r]]; scatter_rows y[rows[r]] = Σ x[r] in order of r, rows that no
// index names are 0; split_halves cuts each row in two, join_halves puts two together. Outputs are `=`. Deterministic.
#include <cstring>

#include "cpu/elementwise.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// Rows per task, such that a task moves about kChunk elements.
int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, kChunk / std::max<int64_t>(1, width));
}

void gather_rows(Stream& stream, const Args& args) {
  const auto [x, rows, y] = args.tensors<3>();
  check_indices("gather_rows", "rows", rows, x[0]);
  const int64_t n = rows[0], bytes = x[1] * size_of(x.dtype), step = rows_per_task(x[1]);
  const int32_t* row = rows.as<int32_t>();
  stream.pool.run((n + step - 1) / step, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(n, (task + 1) * step); r++)
      std::memcpy(y.as<char>() + r * bytes, x.as<char>() + row[r] * bytes, static_cast<size_t>(bytes));
  });
}

void scatter_rows(Stream& stream, const Args& args) {
  const auto [x, rows, y] = args.tensors<3>();
  check_indices("scatter_rows", "rows", rows, y[0]);
  const int64_t n = rows[0], width = x[1], targets = y[0], step = rows_per_task(width);
  // A list of the sources of each target, in order, so that tasks can own targets.
  int32_t* first = stream.scratch.take<int32_t>(targets);
  int32_t* next = stream.scratch.take<int32_t>(n);
  std::fill(first, first + targets, -1);
  for (int64_t r = n - 1; r >= 0; r--) {
    int32_t& head = first[rows.as<int32_t>()[r]];
    next[r] = head;
    head = static_cast<int32_t>(r);
  }
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    stream.pool.run((targets + step - 1) / step, [&](int64_t task) {
      for (int64_t target = task * step; target < std::min(targets, (task + 1) * step); target++) {
        each_vector(0, width, [&](int64_t i, int lanes) {
          vf total = zero();
          for (int32_t r = first[target]; r >= 0; r = next[r])
            total = total + load_lanes(x.as<T>() + r * width + i, lanes);
          store_lanes(y.as<T>() + target * width + i, total, lanes);
        });
      }
    });
  });
}

/// body(r) for rows of `width` elements.
template <typename F>
void each_row(Stream& stream, int64_t rows, int64_t width, F body) {
  const int64_t step = rows_per_task(width);
  stream.pool.run((rows + step - 1) / step, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(rows, (task + 1) * step); r++) body(r);
  });
}

void check_halves(const char* op, int64_t whole, int64_t half) {
  if (whole != 2 * half)
    throw Error("E_SHAPE", format("%s: a row of %lld does not consist of two halves of %lld", op,
                                  static_cast<long long>(whole), static_cast<long long>(half)));
}

void split_halves(Stream& stream, const Args& args) {
  const auto [x, first, second] = args.tensors<3>();
  check_halves("split_halves", x[1], first[1]);
  const int64_t bytes = first[1] * size_of(x.dtype);
  each_row(stream, x[0], x[1], [&](int64_t r) {
    std::memcpy(first.as<char>() + r * bytes, x.as<char>() + 2 * r * bytes, static_cast<size_t>(bytes));
    std::memcpy(second.as<char>() + r * bytes, x.as<char>() + (2 * r + 1) * bytes,
                static_cast<size_t>(bytes));
  });
}

void join_halves(Stream& stream, const Args& args) {
  const auto [first, second, y] = args.tensors<3>();
  check_halves("join_halves", y[1], first[1]);
  const int64_t bytes = first[1] * size_of(y.dtype);
  each_row(stream, y[0], y[1], [&](int64_t r) {
    std::memcpy(y.as<char>() + 2 * r * bytes, first.as<char>() + r * bytes, static_cast<size_t>(bytes));
    std::memcpy(y.as<char>() + (2 * r + 1) * bytes, second.as<char>() + r * bytes,
                static_cast<size_t>(bytes));
  });
}

}  // namespace

void register_memory_rows(KernelTable& table) {
  table.set("gather_rows", gather_rows);
  table.set("scatter_rows", scatter_rows);
  table.set("split_halves", split_halves);
  table.set("join_halves", join_halves);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
