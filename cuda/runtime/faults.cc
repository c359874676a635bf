#include "cuda/runtime/faults.h"

#include <atomic>
#include <bit>
#include <string>

#include "core/error.h"
#include "core/ops.h"
#include "cuda/runtime/check.h"

namespace steptrain::cuda {
namespace {

/// What a setting of sample must be.
const char* expected_of(const std::string& setting) {
  if (setting == "temperature") return "0 or more";
  if (setting == "top_k") return "0 (off) or more";
  if (setting == "top_p") return "more than 0, up to 1 (off)";
  if (setting == "min_p") return "0 (off) to 1";
  return "a number or -inf";
}

}  // namespace

Faults::Faults(cudaStream_t stream) {
  void *claimed = nullptr, *fault = nullptr, *mapped = nullptr;
  check(cudaMalloc(&claimed, sizeof(int32_t)), "opening the GPU");
  claimed_ = static_cast<int32_t*>(claimed);
  check(cudaMemsetAsync(claimed, 0, sizeof(int32_t), stream), "opening the GPU");
  check(cudaHostAlloc(&fault, sizeof(Fault), cudaHostAllocMapped), "opening the GPU");
  fault_ = static_cast<Fault*>(fault);
  *fault_ = Fault{};
  check(cudaHostGetDevicePointer(&mapped, fault, 0), "opening the GPU");
  mapped_ = static_cast<Fault*>(mapped);
}

Faults::~Faults() {
  cudaFree(claimed_);
  cudaFreeHost(fault_);
}

void Faults::raise(int64_t number) const {
  const volatile Fault& f = *fault_;
  const FaultKind kind = f.kind;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (kind == FaultKind::none || f.number > number) return;
  const Signature& op = ops()[static_cast<size_t>(f.op)];
  const std::string& tensor = op.inputs[static_cast<size_t>(f.tensor)].name;
  const auto position = static_cast<long long>(f.position), value = static_cast<long long>(f.value),
             limit = static_cast<long long>(f.limit);
  const auto other = static_cast<long long>(f.other);
  const bool attends = op.name == "attention" || op.name == "attention_backward";  // worded as on the CPU
  std::string found;
  switch (f.kind) {
    case FaultKind::outside:
      found = other ? format("%s[%lld, %lld] is %lld, outside 0..%lld", tensor.c_str(), position, other - 1,
                             value, limit - 1)
                    : format("%s[%lld] is %lld, outside 0..%lld", tensor.c_str(), position, value, limit - 1);
      break;
    case FaultKind::slot:
      found = format("%s[%lld] is %lld, outside -1..%lld", tensor.c_str(), position, value, limit - 1);
      break;
    case FaultKind::negative:
      found = format("%s[%lld] is %lld, below 0", tensor.c_str(), position, value);
      break;
    case FaultKind::start:
      found = format("%s[0] is %lld, %s 0", tensor.c_str(), value, attends ? "must be" : "expected");
      break;
    case FaultKind::descends:
      found = format("%s[%lld] is %lld, below the %lld before it", tensor.c_str(), position, value, limit);
      break;
    case FaultKind::end:
      found = attends ? format("%s[%lld] is %lld, must end at the %lld tokens", tensor.c_str(), position,
                               value, limit)
                      : format("%s ends at %lld, expected %lld", tensor.c_str(), value, limit);
      break;
    case FaultKind::span:
      found = format("%s[%lld] is %lld..%lld, expected an ascending pair in 0..%lld", tensor.c_str(),
                     position, value, other, limit);
      break;
    case FaultKind::binary:
      found = format("%s[%lld] is %lld, expected 0 or 1", tensor.c_str(), position, value);
      break;
    case FaultKind::probability:
      found = format("%s[%lld] is %g, expected a probability from 0 to 1", tensor.c_str(), position,
                     static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(f.other))));
      break;
    case FaultKind::setting:
      found = format("%s[%lld] is %g, expected %s", tensor.c_str(), position,
                     tensor == "top_k"
                         ? static_cast<double>(value)
                         : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(f.other))),
                     expected_of(tensor));
      break;
    case FaultKind::step:
      found = format("%s[%lld] is %lld, expected to begin at 0 and grow by 0 or 1", tensor.c_str(), position,
                     value);
      break;
    case FaultKind::too_few:
      found = format("%s has %lld distances, a sequence of %lld tokens needs as many", tensor.c_str(), value,
                     limit);
      break;
    case FaultKind::too_short:
      found =
          format("%s[%lld] is %lld, below the row's %lld queries", tensor.c_str(), position, value, limit);
      break;
    case FaultKind::run:
      found = format(
          "%s[%lld] is %lld after branch %lld: a branch is one run of tokens, and branches are numbered upwards",
          tensor.c_str(), position, value, limit);
      break;
    default:
      found = format("%s sum to %lld, expected the %lld parameters", tensor.c_str(), value, limit);
  }
  throw Error("E_RANGE", op.name + ": " + found + format(" (op %lld)", static_cast<long long>(f.number)));
}

}  // namespace steptrain::cuda
