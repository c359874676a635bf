// What ops share that go through each sequence token by token: checked borders, branches and rows of kept states. A branch is
// one run of tokens that continues the trunk before it, and branches are numbered upwards in a sequence.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/tensor.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

/// The sequences of one call; the numbers are those of the op's inputs. Passed by value.
struct Recurrence {
  const int32_t* cu_seqlens;
  const int32_t* branch;   // or null
  const int32_t* slots;    // rows of the state, or null
  const int32_t* lengths;  // tokens of each sequence up to its last one here; or null
  int64_t tokens, sequences, rows;
  int borders_input, branch_input, slots_input, lengths_input;
  FaultReporter faults;

#ifdef __CUDACC__
  /// Where a sequence lies and continues; false where an index may not be used, which is reported.
  struct Place {
    int64_t begin, end, slot, before;
  };
  __device__ bool find(int64_t s, Place& place) const {
    place.slot = -1, place.before = 0;
    if (!range_holds(faults, borders_input, cu_seqlens, s, sequences, tokens, place.begin, place.end))
      return false;
    if (!slots) return true;
    place.slot = slots[s];
    if (place.slot < -1 || place.slot >= rows) {
      report(faults, FaultKind::slot, slots_input, s, place.slot, rows);
      return false;
    }
    if (place.slot < 0) return true;
    place.before = lengths[s] - (place.end - place.begin);
    if (place.before >= 0) return true;
    report(faults, FaultKind::too_short, lengths_input, s, lengths[s], place.end - place.begin);
    return false;
  }
  __device__ int32_t branch_of(int64_t t) const {
    return branch ? branch[t] : 0;
  }
  /// Whether the branches of a sequence are runs with ascending numbers; reports the first that is not.
  __device__ bool branches_hold(const Place& place) const {
    if (!branch) return true;
    int32_t last = 0, highest = 0;
    for (int64_t t = place.begin; t < place.end; last = branch[t++]) {
      if (branch[t] == 0 || branch[t] == last) continue;
      if (branch[t] <= highest) {
        report(faults, FaultKind::run, branch_input, t, branch[t], highest);
        return false;
      }
      highest = branch[t];
    }
    return true;
  }
  /// The token before t in its sequence; -1: none.
  __device__ int64_t previous(int64_t t, int64_t begin) const {
    if (!branch) return t > begin ? t - 1 : -1;
    const int32_t own = branch[t];
    for (int64_t at = t - 1; at >= begin; at--)
      if (branch[at] == own || branch[at] == 0) return at;
    return -1;
  }
#endif
};

struct RecurrenceInputs {
  int borders, branch, slots = -1, lengths = -1;
};

/// Throws E_SHAPE.
inline Recurrence recurrence(const char* op, Stream& stream, int64_t tokens, const RecurrenceInputs& at,
                             const TensorView& cu, const TensorView& branches, const TensorView& state = {},
                             const TensorView& slots = {}, const TensorView& lengths = {}) {
  if ((state || slots || lengths) && !(state && slots && lengths))
    throw Error("E_SHAPE", format("%s: state, slots and lengths go together", op));
  if (slots && branches) throw Error("E_SHAPE", format("%s: a sequence with branches keeps no state", op));
  return {cu.as<int32_t>(),
          branches ? branches.as<int32_t>() : nullptr,
          slots ? slots.as<int32_t>() : nullptr,
          lengths ? lengths.as<int32_t>() : nullptr,
          tokens,
          cu[0] - 1,
          state ? state[0] : 0,
          at.borders,
          at.branch,
          at.slots,
          at.lengths,
          stream.faults};
}

}  // namespace steptrain::cuda
