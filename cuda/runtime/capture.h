// The compiled form of a captured list of ops: a CUDA graph, with the workspace of its pool.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "core/record.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {

/// Shared by graphs that never run at the same time.
struct GraphWorkspace {
  GraphWorkspace(int64_t bytes, cudaStream_t stream);
  ~GraphWorkspace();
  GraphWorkspace(const GraphWorkspace&) = delete;
  GraphWorkspace& operator=(const GraphWorkspace&) = delete;

  int device = 0;
  int64_t bytes;
  cudaStream_t stream;  // freed in its order
  void* data = nullptr;
};

struct CompiledGraph {
  CompiledGraph() = default;
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  int device = 0;
  cudaGraphExec_t executable = nullptr;
  std::shared_ptr<GraphWorkspace> workspace;  // none where no op needs any
  int64_t workspace_bytes = 0;
  int64_t launches = 0;  // kernels of one replay
};

/// Compiles the records for replay on `stream`. Runs the ops' host functions twice, first to load the kernels
/// and measure the workspace, both of which a capture forbids; runs no kernel. Throws the error of an op that
/// refuses its arguments.
std::shared_ptr<CompiledGraph> compile(const Graph& graph, const KernelTable& table, const Faults& faults,
                                       PreparedKernels& prepared, const Hardware& hardware, uint32_t* ticket,
                                       cudaStream_t stream);

}  // namespace steptrain::cuda
