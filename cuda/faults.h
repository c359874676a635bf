// What a kernel found wrong in its arguments' values. Ops return before their kernels run, so a kernel that
// meets an index out of range skips it and leaves a report, which the device's next wait turns into an error.
// The first report stands; the report lies in host memory that the GPU writes into, so that a wait which
// finds none costs nothing.
#pragma once

#include <cstdint>

namespace steptrain::cuda {

enum class FaultKind : int32_t {
  none,
  outside,   // tensor[position] is value, outside 0..limit-1
  negative,  // tensor[position] is value, below 0
  sum,       // the tensor's elements sum to value, expected limit
};

struct Fault {
  FaultKind kind;
  int32_t op;      // index into ops()
  int32_t tensor;  // of the op's inputs
  int64_t number;  // of the op
  int64_t position, value, limit;
};

/// What a kernel needs to leave a report; passed by value.
struct FaultReporter {
  int32_t* claimed = nullptr;  // device memory: 1 once there is a report
  Fault* fault = nullptr;      // host memory, mapped
  int32_t op = -1;
  int64_t number = 0;
};

/// Owns the place of the report.
class Faults {
 public:
  Faults();
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  FaultReporter reporter(int op, int64_t number) const { return {claimed_, mapped_, op, number}; }
  /// Once the stream is idle: throws Error(E_RANGE) with the report, if there is one.
  void raise() const;

 private:
  int32_t* claimed_ = nullptr;
  Fault* fault_ = nullptr;   // as the host sees it
  Fault* mapped_ = nullptr;  // as the GPU sees it
};

#ifdef __CUDACC__

__device__ inline void report(const FaultReporter& to, FaultKind kind, int tensor, int64_t position,
                              int64_t value, int64_t limit) {
  if (atomicCAS(to.claimed, 0, 1) != 0) return;
  volatile Fault* fault = to.fault;
  fault->op = to.op;
  fault->tensor = tensor;
  fault->number = to.number;
  fault->position = position;
  fault->value = value;
  fault->limit = limit;
  fault->kind = kind;
  __threadfence_system();
}

/// Whether `value`, read from element `position` of the op's input `tensor`, may be used as an index below
/// `limit`; reports it where not.
__device__ inline bool index_holds(const FaultReporter& to, int tensor, int64_t position, int64_t value,
                                   int64_t limit) {
  if (value >= 0 && value < limit) return true;
  report(to, FaultKind::outside, tensor, position, value, limit);
  return false;
}

#endif

}  // namespace steptrain::cuda
