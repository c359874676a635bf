// The paths of a sequence through the chunks of the gated delta rule (delta_chunks.h).
#pragma once

#if defined(__AVX512BF16__)

#include <algorithm>

#include "cpu/attention/delta_chunks_rows.h"
#include "cpu/recurrence.h"

namespace steptrain::cpu::STEPTRAIN_ISA::delta {

/// The tokens of a sequence: its trunk, and the runs of its branches in order.
struct Tree {
  struct Branch {
    int64_t first, count, at;  // tokens first … first + count - 1 after `at` tokens of the trunk
  };
  int32_t *trunk, *all;  // tokens of the trunk; all, in order
  int64_t length = 0;    // of the trunk
  Branch* branches;
  int64_t count = 0;

  Tree(Memory& memory, int64_t longest, bool branched)
      : trunk(memory.take<int32_t>(longest)),
        all(memory.take<int32_t>(longest)),
        branches(memory.take<Branch>(branched ? longest : 1)) {}

  void read(const Recurrence& sequences, int64_t s) {
    length = count = 0;
    const int64_t first = sequences.begin(s), tokens = sequences.length(s);
    int64_t run = 0;
    for (int64_t i = 0; i < tokens; i++) {
      const int64_t branch = sequences.branch_of(first + i);
      all[i] = static_cast<int32_t>(first + i);
      if (branch == 0) {
        trunk[length++] = all[i];
      } else if (branch != run) {
        branches[count++] = {i, 1, length};
      } else {
        branches[count - 1].count++;
      }
      run = branch;
    }
  }
  /// Chunks of the trunk, with one that only branches have.
  int64_t chunks() const {
    const int64_t full = (length + kChunk - 1) / kChunk;
    return count > 0 ? std::max(full, branches[count - 1].at / kChunk + 1) : full;
  }
  int64_t longest_branch() const {
    int64_t most = 0;
    for (int64_t b = 0; b < count; b++) most = std::max(most, branches[b].count);
    return most;
  }
  Rows chunk(int64_t m) const {
    return {trunk + m * kChunk, 0, std::clamp<int64_t>(length - m * kChunk, 0, kChunk)};
  }
  /// The rows of a branch in the chunk of the trunk where it begins.
  Rows beginning(const Branch& branch) const {
    const int64_t from = branch.at % kChunk;
    return {all + branch.first, from, std::min(from + branch.count, kChunk)};
  }
  /// Later ones.
  Rows later(const Branch& branch, int64_t done) const {
    return {all + branch.first + done, 0, std::min(branch.count - done, kChunk)};
  }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
