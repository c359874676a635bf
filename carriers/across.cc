#include "carriers/across.h"

#include <algorithm>

#include "carriers/communicators.h"
#include "core/error.h"

namespace steptrain {
namespace {

/// Elements of a run: those of all rows are in the cache at a time.
constexpr int64_t kAdded = 4096;

void exchange_parts(const steptrain_carrier& carrier, const std::vector<steptrain_part>& from,
                    const std::vector<steptrain_part>& to) {
  check_carried(carrier, carrier.exchange(carrier.self, from.data(), to.data()), "the sum of gradients");
}

steptrain_part part_of(float* data, int64_t length) {
  return {data, static_cast<size_t>(length) * sizeof(float)};
}

}  // namespace

void sum_across(const steptrain_carrier& carrier, const PieceSum& piece) {
  const auto size = static_cast<size_t>(carrier.size), rank = static_cast<size_t>(carrier.rank);
  if (!carrier.exchange) throw Error("E_UNSUPPORTED", "this carrier has no exchange in host memory");
  if (piece.counts.size() != size || piece.begins.size() != size + 1 || piece.wanted.size() != size ||
      piece.rows.size() != static_cast<size_t>(piece.counts[rank]))
    throw Error("E_SHAPE", format("a sum over %d processes with parts for another number", carrier.size));
  const auto most = static_cast<size_t>(*std::max_element(piece.counts.begin(), piece.counts.end()));
  const auto others = static_cast<int64_t>(most * (size - 1));
  const int64_t step = others > 0 ? piece.scratch_length / others : 0;
  if (others > 0 && step < 1) throw Error("E_SHAPE", "a sum over processes without room for what arrives");
  int64_t longest = 0;
  for (size_t r = 0; r < size; r++) longest = std::max(longest, piece.begins[r + 1] - piece.begins[r]);
  std::vector<float*> row(most * size, nullptr);
  std::vector<steptrain_part> from(size), to(size);
  for (int64_t at = 0; at < longest; at += step) {
    const auto begin = [&](size_t r) { return std::min(piece.begins[r] + at, piece.begins[r + 1]); };
    const auto length = [&](size_t r) { return std::min(step, piece.begins[r + 1] - begin(r)); };
    const int64_t own = length(rank);
    float* free = piece.scratch;
    for (size_t i = 0; i < most; i++) {
      for (size_t r = 0; r < size; r++) {
        const bool sends = i < piece.rows.size(), gets = static_cast<int>(i) < piece.counts[r];
        from[r] = sends ? part_of(piece.rows[i] + begin(r), length(r)) : part_of(nullptr, 0);
        row[i * size + r] = !gets ? nullptr : r == rank ? piece.rows[i] + begin(rank) : free;
        to[r] = gets ? part_of(row[i * size + r], own) : part_of(nullptr, 0);
        if (gets && r != rank) free += own;
      }
      exchange_parts(carrier, from, to);
    }
    float* const sum = piece.result + begin(rank);
    for (int64_t run = 0; run < own; run += kAdded) {
      const int64_t count = std::min(kAdded, own - run);
      for (const auto& [left, right] : piece.pairs) {
        float* const into = row[static_cast<size_t>(left)] + run;
        const float* const other = row[static_cast<size_t>(right)] + run;
        for (int64_t k = 0; k < count; k++) into[k] += other[k];
      }
      const float* const root = row[static_cast<size_t>(piece.root)] + run;
      if (root != sum + run) std::copy_n(root, count, sum + run);
    }
    const auto wanted = [&](size_t of, size_t by) {
      const auto [first, end] = piece.wanted[by];
      const int64_t from = std::max(begin(of), first), to = std::min(begin(of) + length(of), end);
      return part_of(piece.result + from, std::max<int64_t>(0, to - from));
    };
    for (size_t r = 0; r < size; r++) {
      from[r] = wanted(rank, r);
      to[r] = wanted(r, rank);
    }
    exchange_parts(carrier, from, to);
  }
}

}  // namespace steptrain
