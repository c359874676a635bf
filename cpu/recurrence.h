// What ops share that go through each sequence token by token: checked borders, branches, and the rows of kept states that
// sequences continue.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/tensor.h"
#include "cpu/indices.h"

namespace steptrain::cpu {

/// The sequences of one call. A branch is one run of tokens that continues the trunk before it, and branches are numbered
/// upwards in a sequence.
struct Recurrence {
  int64_t tokens, sequences;
  const int32_t* cu_seqlens;
  const int32_t* branch;   // or null
  const int32_t* slots;    // rows of the state, or null
  const int32_t* lengths;  // tokens of each sequence up to its last one here; or null

  /// Throws E_SHAPE or E_RANGE.
  Recurrence(const char* op, int64_t tokens, const TensorView& cu, const TensorView& branches,
             const TensorView& state = {}, const TensorView& rows = {}, const TensorView& ends = {})
      : tokens(tokens),
        sequences(cu[0] - 1),
        cu_seqlens(cu.as<int32_t>()),
        branch(branches ? branches.as<int32_t>() : nullptr),
        slots(rows ? rows.as<int32_t>() : nullptr),
        lengths(ends ? ends.as<int32_t>() : nullptr) {
    check_offsets(op, "cu_seqlens", cu, tokens);
    if ((state || slots || lengths) && !(state && slots && lengths))
      throw Error("E_SHAPE", format("%s: state, slots and lengths go together", op));
    if (slots && branch) throw Error("E_SHAPE", format("%s: a sequence with branches keeps no state", op));
    if (branch) check_branches(op);
    if (slots) check_slots(op, state[0]);
  }

  int64_t begin(int64_t sequence) const { return cu_seqlens[sequence]; }
  int64_t length(int64_t sequence) const { return cu_seqlens[sequence + 1] - cu_seqlens[sequence]; }
  /// The row of the state that the sequence continues and leaves; -1: none.
  int64_t slot(int64_t sequence) const { return slots ? slots[sequence] : -1; }
  /// Tokens of the sequence before its first one here.
  int64_t before(int64_t sequence) const { return slots ? lengths[sequence] - length(sequence) : 0; }
  int64_t branch_of(int64_t token) const { return branch ? branch[token] : 0; }
  int64_t longest() const {
    int64_t most = 0;
    for (int64_t s = 0; s < sequences; s++) most = length(s) > most ? length(s) : most;
    return most;
  }

 private:
  void check_branches(const char* op) const {
    for (int64_t s = 0; s < sequences; s++) {
      int32_t last = 0, highest = 0;
      for (int64_t t = begin(s); t < begin(s) + length(s); last = branch[t++]) {
        if (branch[t] == 0 || branch[t] == last) continue;
        if (branch[t] <= highest)
          throw Error("E_RANGE",
                      format("%s: branch[%lld] is %d after branch %d: a branch is one run of tokens, and "
                             "branches are numbered upwards",
                             op, static_cast<long long>(t), branch[t], highest));
        highest = branch[t];
      }
    }
  }

  void check_slots(const char* op, int64_t rows) const {
    for (int64_t s = 0; s < sequences; s++) {
      if (slots[s] < -1 || slots[s] >= rows)
        throw Error("E_RANGE", format("%s: slots[%lld] is %d, outside -1..%lld", op,
                                      static_cast<long long>(s), slots[s], static_cast<long long>(rows - 1)));
      if (slots[s] >= 0 && lengths[s] < length(s))
        throw Error("E_RANGE",
                    format("%s: lengths[%lld] is %d, below the %lld tokens that are given", op,
                           static_cast<long long>(s), lengths[s], static_cast<long long>(length(s))));
      for (int64_t other = 0; slots[s] >= 0 && other < s; other++)
        if (slots[other] == slots[s])
          throw Error("E_RANGE", format("%s: slots[%lld] and slots[%lld] are both %d", op,
                                        static_cast<long long>(other), static_cast<long long>(s), slots[s]));
    }
  }
};

}  // namespace steptrain::cpu
