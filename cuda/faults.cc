#include "cuda/faults.h"

#include <string>

#include "core/error.h"
#include "core/ops.h"
#include "cuda/check.h"

namespace steptrain::cuda {

Faults::Faults() {
  void *claimed = nullptr, *fault = nullptr, *mapped = nullptr;
  check(cudaMalloc(&claimed, sizeof(int32_t)), "opening the GPU");
  claimed_ = static_cast<int32_t*>(claimed);
  check(cudaMemset(claimed, 0, sizeof(int32_t)), "opening the GPU");
  check(cudaHostAlloc(&fault, sizeof(Fault), cudaHostAllocMapped), "opening the GPU");
  fault_ = static_cast<Fault*>(fault);
  *fault_ = Fault{};
  check(cudaHostGetDevicePointer(&mapped, fault, 0), "opening the GPU");
  mapped_ = static_cast<Fault*>(mapped);
  check(cudaDeviceSynchronize(), "opening the GPU");
}

Faults::~Faults() {
  cudaFree(claimed_);
  cudaFreeHost(fault_);
}

void Faults::raise() const {
  const volatile Fault& f = *fault_;
  if (f.kind == FaultKind::none) return;
  const Signature& op = ops()[static_cast<size_t>(f.op)];
  const std::string& tensor = op.inputs[static_cast<size_t>(f.tensor)].name;
  const auto position = static_cast<long long>(f.position), value = static_cast<long long>(f.value),
             limit = static_cast<long long>(f.limit);
  std::string found;
  switch (f.kind) {
    case FaultKind::outside:
      found = format("%s[%lld] is %lld, outside 0..%lld", tensor.c_str(), position, value, limit - 1);
      break;
    case FaultKind::negative:
      found = format("%s[%lld] is %lld, below 0", tensor.c_str(), position, value);
      break;
    default:
      found = format("%s sum to %lld, expected %lld", tensor.c_str(), value, limit);
  }
  throw Error("E_RANGE", op.name + ": " + found + format(" (op %lld)", static_cast<long long>(f.number)));
}

}  // namespace steptrain::cuda
