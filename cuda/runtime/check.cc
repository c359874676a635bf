#include "cuda/runtime/check.h"

#include <string>

#include "core/error.h"

namespace steptrain::cuda {
namespace {

/// Errors after which every further call of the process fails in the same way (CUDA Runtime API, cudaError).
bool ends_context(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check(cudaError_t status, const char* doing, std::source_location where) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // the next call must not find an error again that does not last
  const std::string what =
      std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ") while " + doing;
  if (status == cudaErrorMemoryAllocation)
    throw Error("E_MEMORY", what, "use smaller micro-batches, gradient checkpointing or a smaller model",
                where);
  if (ends_context(status))
    throw Error(
        "E_DEVICE", what,
        "after this CUDA error only a new process recovers; a kernel may have failed earlier than the "
        "op at which it was noticed: CUDA_LAUNCH_BLOCKING=1 names it",
        where);
  throw Error("E_DEVICE", what, "", where);
}

}  // namespace steptrain::cuda
