#include "cuda/runtime/capture.h"

#include <algorithm>

#include "cuda/runtime/capture_lock.h"
#include "cuda/runtime/check.h"

namespace steptrain::cuda {
namespace {

/// Ends an open capture even after an error, because the thread could not start another one.
class Capture {
 public:
  Capture() {
    // A stream of its own: the host thread may free memory in the order of the compute stream meanwhile.
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "capturing");
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
    open_ = true;
  }
  ~Capture() {
    if (open_) cudaStreamEndCapture(stream_, &graph_);
    if (graph_) cudaGraphDestroy(graph_);
    if (stream_) cudaStreamDestroy(stream_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaStream_t stream() const { return stream_; }
  cudaGraphExec_t finish() {
    open_ = false;
    check(cudaStreamEndCapture(stream_, &graph_), "capturing");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph_, 0), "capturing");
    return executable;
  }

 private:
  const std::lock_guard<std::recursive_mutex> lock_{capture_lock()};
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  bool open_ = false;
};

}  // namespace

CompiledGraph::~CompiledGraph() {
  cudaSetDevice(device);                             // the host thread may use another device
  if (executable) cudaGraphExecDestroy(executable);  // does not disturb a running replay
}

GraphWorkspace::GraphWorkspace(int64_t size, cudaStream_t order) : bytes(size), stream(order) {
  check(cudaGetDevice(&device), "allocating workspace");
  check(cudaMallocAsync(&data, static_cast<size_t>(bytes), stream), "allocating workspace");
}

GraphWorkspace::~GraphWorkspace() {
  cudaSetDevice(device);  // the host thread may use another device
  if (data) cudaFreeAsync(data, stream);
}

std::shared_ptr<CompiledGraph> compile(const Graph& graph, const KernelTable& table, const Faults& faults,
                                       PreparedKernels& prepared, const Hardware& hardware, uint32_t* ticket,
                                       cudaStream_t stream) {
  const auto queue_all = [&](Stream& onto) {
    Predecessor predecessor;
    onto.predecessor = &predecessor;
    for (const Record& record : graph.records) {
      const int64_t before = onto.launches;
      onto.faults = faults.reporter(record.op, record.number);
      table.at(record.op)(onto, record.args);
      onto.scratch.reset();
      predecessor.follow(record.op, record.args, onto.launches > before);
    }
  };
  auto compiled = std::make_shared<CompiledGraph>();
  check(cudaGetDevice(&compiled->device), "capturing");

  Scratch needed = Scratch::measuring();
  Stream dry{nullptr, needed, prepared, hardware, ticket, true};
  queue_all(dry);
  compiled->launches = dry.launches;
  compiled->workspace_bytes = needed.peak();
  if (needed.peak() > 0) {
    // One that is too small stays with the graphs that know its address.
    auto shared = std::static_pointer_cast<GraphWorkspace>(graph.pool->workspace);
    if (!shared || shared->bytes < needed.peak()) {
      shared = std::make_shared<GraphWorkspace>(needed.peak(), stream);
      graph.pool->workspace = shared;
    }
    compiled->workspace = std::move(shared);
  }

  Capture capture;
  Scratch own = Scratch::within(compiled->workspace ? compiled->workspace->data : nullptr, needed.peak());
  Stream captured{capture.stream(), own, prepared, hardware, ticket};
  queue_all(captured);
  compiled->executable = capture.finish();
  return compiled;
}

}  // namespace steptrain::cuda
