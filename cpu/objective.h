// How the CPU evaluates an objective (core/objective.h): one region over chunks of kChunk items (1,024 where an objective says nothing), whose sums
// are added in index order, so that the number of threads changes nothing.
#pragma once

#include <algorithm>

#include "core/error.h"
#include "core/objective.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Refuses the label or target of item i.
template <typename Objective>
[[noreturn]] void refuse(const Objective& items, int64_t i) {
  const auto index = static_cast<long long>(i);
  if constexpr (Objective::kCheck == objective::Check::probability) {
    throw Error("E_RANGE", format("%s: labels[%lld] is %g, expected a probability from 0 to 1",
                                  Objective::kName, index, static_cast<double>(items.labels[i])));
  } else if constexpr (Objective::kCheck == objective::Check::binary) {
    throw Error("E_RANGE", format("%s: labels[%lld] is %d, expected 0 or 1 (give weight 0 to skip an item)",
                                  Objective::kName, index, items.labels[i]));
  } else {
    throw Error("E_RANGE", format("%s: targets[%lld] is %d, outside 0..%lld", Objective::kName, index,
                                  items.targets[i], static_cast<long long>(items.classes - 1)));
  }
}

template <typename Objective>
void evaluate(Stream& stream, int64_t n, const Objective& items) {
  using Tally = objective::Tally<Objective::kSums>;
  constexpr int64_t kChunk = [] {
    if constexpr (requires { Objective::kChunk; }) return Objective::kChunk;
    return int64_t{1024};
  }();
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  Tally* const partial = stream.scratch.take<Tally>(chunks);
  stream.pool.run(chunks, [n, partial, items](int64_t chunk) {
    Tally tally = {};
    for (int64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); i++) {
      items.clear(i);
      if (items.skips(i)) continue;
      if constexpr (Objective::kCheck != objective::Check::none)
        if (!items.holds(i)) refuse(items, i);
      items.add(i, tally);
    }
    partial[chunk] = tally;
  });
  Tally total = {};
  for (int64_t chunk = 0; chunk < chunks; chunk++) {
    for (int k = 0; k < Objective::kSums; k++) total[k] += partial[chunk][k];
    total.raise(partial[chunk].largest);
  }
  items.finish(total);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
