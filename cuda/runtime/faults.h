// Reports of invalid values in a kernel's arguments. Ops return before their kernels run, so a kernel that
// finds an index out of range skips it and writes a report, which the device's next wait turns into an error.
// The first report stands. It is in host memory that the GPU can write,
// so that a wait without a report costs nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace steptrain::cuda {

enum class FaultKind : int32_t {
  none,
  outside,  // tensor[position] is value, outside 0..limit-1; `other`: 1 + the column, 0 where there is one axis
  slot,     // tensor[position] is value, outside -1..limit-1
  negative,  // tensor[position] is value, below 0
  sum,       // the tensor's elements sum to value, expected limit
  // Offsets of ranges:
  start,     // tensor[0] is value, expected 0
  descends,  // tensor[position] is value, below the limit before it
  end,       // the tensor's last element, at position, is value, expected limit
  span,      // tensor[position] is value..other, expected an ascending pair in 0..limit
  // Values:
  binary,       // tensor[position] is value, expected 0 or 1
  probability,  // tensor[position] is the float whose bits `other` holds, expected 0 to 1
  setting,    // tensor[position] is value, or the float whose bits `other` holds: out of the setting's range
  step,       // tensor[position] is value: it does not begin at 0, or grows by other than 0 or 1
  too_few,    // the tensor has value elements, a sequence of `limit` tokens needs as many
  too_short,  // tensor[position] is value, below the row's `limit` queries
  run,        // tensor[position] is value after `limit`: branches are runs, numbered upwards
};

struct Fault {
  FaultKind kind;
  int32_t op;      // index into ops()
  int32_t tensor;  // of the op's inputs
  int64_t number;  // of the op
  int64_t position, value, limit, other;
};

/// What a kernel needs to write a report; passed by value.
struct FaultReporter {
  int32_t* claimed = nullptr;  // device memory: 1 once there is a report
  Fault* fault = nullptr;      // host memory, mapped
  int32_t op = -1;
  int64_t number = 0;
};

/// Owns the memory of the report.
class Faults {
 public:
  /// Cleared in the order of `stream`.
  explicit Faults(cudaStream_t stream);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  FaultReporter reporter(int op, int64_t number) const { return {claimed_, mapped_, op, number}; }
  /// Throws Error(E_RANGE) with the report, if there is one of an op up to number `number`. Those ops must have run;
  /// later ones may be running.
  void raise(int64_t number) const;

 private:
  int32_t* claimed_ = nullptr;
  Fault* fault_ = nullptr;   // as the host sees it
  Fault* mapped_ = nullptr;  // as the GPU sees it
};

#ifdef __CUDACC__

__device__ inline void report(const FaultReporter& to, FaultKind kind, int tensor, int64_t position,
                              int64_t value, int64_t limit, int64_t other = 0) {
  if (atomicCAS(to.claimed, 0, 1) != 0) return;
  volatile Fault* fault = to.fault;
  fault->op = to.op;
  fault->tensor = tensor;
  fault->number = to.number;
  fault->position = position;
  fault->value = value;
  fault->limit = limit;
  fault->other = other;
  __threadfence_system();  // the host may look while later kernels run: the kind must come last
  fault->kind = kind;
}

/// Whether `value`, read from element `position` of the op's input `tensor`, may be used as an index below
/// `limit`; reports it where not.
__device__ inline bool index_holds(const FaultReporter& to, int tensor, int64_t position, int64_t value,
                                   int64_t limit) {
  if (value >= 0 && value < limit) return true;
  report(to, FaultKind::outside, tensor, position, value, limit);
  return false;
}

/// Range `index` of `count`, given by `offsets` [count + 1], the op's input `tensor`, which must go from 0 to
/// `total` without a gap. False where the range may not be used; every launch reports at least one violation.
__device__ inline bool range_holds(const FaultReporter& to, int tensor, const int32_t* offsets, int64_t index,
                                   int64_t count, int64_t total, int64_t& begin, int64_t& end) {
  begin = offsets[index], end = offsets[index + 1];
  if (index == 0 && begin != 0) {
    report(to, FaultKind::start, tensor, 0, begin, 0);
  } else if (end < begin) {
    report(to, FaultKind::descends, tensor, index + 1, end, begin);
  } else if (index + 1 == count && end != total) {
    report(to, FaultKind::end, tensor, count, end, total);
  } else {
    return begin >= 0 && end <= total;
  }
  return false;
}
/// The same for the offsets of no range.
__device__ inline void no_range_holds(const FaultReporter& to, int tensor, const int32_t* offsets,
                                      int64_t total) {
  if (offsets[0] != 0) return report(to, FaultKind::start, tensor, 0, offsets[0], 0);
  if (total != 0) report(to, FaultKind::end, tensor, 0, 0, total);
}

#endif

}  // namespace steptrain::cuda
