// Names ops for profilers (Nsight Systems) if the CUDA toolkit of the build has NVTX, which consists of
// headers only and costs a branch where no profiler listens.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define STEPTRAIN_NVTX 1
#endif

namespace steptrain::cuda {

/// A range on the timeline of the running thread, from construction to destruction.
class TraceRange {
 public:
#ifdef STEPTRAIN_NVTX
  explicit TraceRange(const char* name) {
    nvtxRangePushA(name);
  }
  ~TraceRange() {
    nvtxRangePop();
  }
#else
  explicit TraceRange(const char*) {}
#endif
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace steptrain::cuda
