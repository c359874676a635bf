// The CUDA device: everything happens in the order of one compute stream, but for what carriers move beside it. Memory segments come from
// cudaMalloc and are divided by core/allocator.h. The queue's thread launches and does not wait, except where
// all staging buffers are in use; reads end on the waiter's thread.
#include "cuda/runtime/backend.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "core/ops.h"
#include "cuda/gemm/quantized_parts.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/capture_lock.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/families.h"
#include "cuda/runtime/staging.h"
#include "cuda/runtime/trace.h"

namespace steptrain::cuda {
namespace {

constexpr int kOldestMajor = 8;  // compute capability of the oldest GPU that kernels are compiled for

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "asking what the GPU is");
  return value;
}

std::string model(int index) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) return properties.name;
  cudaGetLastError();
  return "a GPU that does not answer";
}

/// "13.0" for 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The oldest driver that a runtime of a major version of CUDA works
/// with (CUDA Compatibility, Minor Version Compatibility).
constexpr int kDriverNeeded = CUDART_VERSION >= 13000 ? 580 : 525;

/// Graphs hold early starts since CUDA 12.3 (CUDA Programming Guide, Edge Data).
bool captures_early_starts() {
  constexpr int kSince = 12030;
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "asking what the driver is");
  return driver >= kSince && CUDART_VERSION >= kSince;
}

/// "535.183.01", or "" where the kernel does not say.
std::string driver_release() {
  std::string release;
  std::ifstream("/sys/module/nvidia/version") >> release;
  return release;
}

/// The number of GPUs that are visible to this process. Where there are none, `why` says what prevents it.
int count_devices(std::string& why) {
  int count = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    why = "this machine has no NVIDIA driver";
  } else if (status == cudaErrorInsufficientDriver) {
    const std::string release = driver_release();
    why =
        "its NVIDIA driver" + (release.empty() ? "" : " " + release) + " is for CUDA " +
        version_text(driver) + ", and this addon was built with CUDA " + version_text(CUDART_VERSION) +
        ", which needs driver " + std::to_string(kDriverNeeded) +
        " or newer; update the driver, or rebuild with this machine's own CUDA toolkit (npx steptrain build)";
  } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
    why = "no NVIDIA GPU is visible to this process";
  } else {
    why = cudaGetErrorString(status);
  }
  return 0;
}

/// What belongs to the queue's thread, from start() to the end.
struct Session {
  explicit Session(std::atomic<int64_t>& waits) : staging{compute.stream, faults, waits} {}

  struct OwnedStream {
    cudaStream_t stream = nullptr;
    OwnedStream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "opening the GPU"); }
    ~OwnedStream() { cudaStreamDestroy(stream); }
    OwnedStream(const OwnedStream&) = delete;
    OwnedStream& operator=(const OwnedStream&) = delete;
  };
  /// Stream::ticket.
  struct Tickets {
    uint32_t* data = nullptr;
    explicit Tickets(cudaStream_t stream) {
      void* memory = nullptr;
      check(cudaMalloc(&memory, kTickets * sizeof *data), "opening the GPU");
      data = static_cast<uint32_t*>(memory);
      check(cudaMemsetAsync(memory, 0, kTickets * sizeof *data, stream), "opening the GPU");
    }
    ~Tickets() { cudaFree(data); }
    Tickets(const Tickets&) = delete;
    Tickets& operator=(const Tickets&) = delete;
  };
  OwnedStream compute;
  Faults faults{compute.stream};
  Staging staging;
  Scratch scratch{compute.stream};
  PreparedKernels prepared;
  Tickets tickets{compute.stream};
  Predecessor predecessor;
  Beside beside;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index)
      : index_(index), name_("cuda:" + std::to_string(index)), model_(model(index)) {
    const int major = attribute(cudaDevAttrComputeCapabilityMajor, index);
    hardware_ = {attribute(cudaDevAttrMultiProcessorCount, index),
                 10 * major + attribute(cudaDevAttrComputeCapabilityMinor, index),
                 attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index)};
    const char* const early = std::getenv("STEPTRAIN_EARLY_START");
    hardware_.early_start = (!early || std::string_view(early) != "0") && captures_early_starts();
    hardware_.choice = Choice::of_environment();
    isa_ = "sm_" + std::to_string(hardware_.compute_capability);
    if (major < kOldestMajor)
      throw Error("E_UNSUPPORTED", "device '" + name_ + "' (" + model_ + ") is " + isa_ +
                                       ", but kernels need sm_" + std::to_string(10 * kOldestMajor) +
                                       " (Ampere) or newer");
    use();
  }
  ~CudaBackend() override {
    const std::lock_guard lock(capture_lock());
    cudaSetDevice(index_);
    session_.reset();
  }

  BackendInfo info() const override {
    size_t free = 0, total = 0;
    use();
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    return {name_,
            model_,
            isa_,
            hardware_.multiprocessors,
            static_cast<int64_t>(total),
            static_cast<int64_t>(free)};
  }
  void* acquire(int64_t bytes) override {
    const std::lock_guard lock(capture_lock());
    use();
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "allocating memory");
    return data;
  }
  void release(void* data, int64_t) override {
    // The queue has waited for the stream. Errors do not matter:
    // where the context is lost, nothing is left to free.
    const std::lock_guard lock(capture_lock());
    cudaSetDevice(index_);
    cudaFree(data);
  }
  int64_t packed_bytes(const TensorView& weight) const override {
    return weight.format == Format::none ? weight.bytes()
                                         : QuantizedParts(weight.format, weight[0], weight[1]).bytes;
  }
  bool has(int op) const override { return kernels().at(op) != nullptr; }

  void start() override {
    const std::lock_guard lock(capture_lock());
    use();
    session_ = std::make_unique<Session>(waits_);
  }
  void run(int op, const Args& args) override {
    number_++;
    Stream stream{session_->compute.stream, session_->scratch, session_->prepared, hardware_,
                  session_->tickets.data};
    stream.predecessor = &session_->predecessor;
    stream.beside = &session_->beside;
    stream.faults = session_->faults.reporter(op, number_);
    {
      const TraceRange range(ops()[static_cast<size_t>(op)].name.c_str());
      kernels().at(op)(stream, args);
    }
    session_->scratch.reset();
    session_->predecessor.follow(op, args, stream.launches > 0);
    ops_++;
    launches_ += stream.launches;
    scratch_peak_ = std::max<int64_t>(scratch_peak_, session_->scratch.peak());
  }
  void upload(const TensorView& target, const void* bytes) override {
    number_++;
    session_->predecessor.is_kernel = false;
    session_->staging.upload(target.data, bytes, target.bytes());
  }
  void download(const TensorView& source, void* bytes, const Later& later) override {
    number_++;
    session_->predecessor.is_kernel = false;
    session_->staging.download(bytes, source.data, source.bytes(), number_, later);
  }
  void signal(const Later& later) override {
    session_->predecessor.is_kernel = false;
    session_->staging.download(nullptr, nullptr, 0, number_, later);
  }
  void replay(Graph& graph) override {
    Session& s = *session_;
    if (!graph.compiled)
      graph.compiled =
          compile(graph, kernels(), s.faults, s.prepared, hardware_, s.tickets.data, s.compute.stream);
    // The captured ops took numbers when they were queued.
    if (!graph.records.empty()) number_ = std::max(number_, graph.records.back().number);
    number_++;
    const TraceRange range("replay");
    const auto& compiled = *static_cast<const CompiledGraph*>(graph.compiled.get());
    s.predecessor.is_kernel = false;
    check(cudaGraphLaunch(compiled.executable, s.compute.stream), "replaying a graph");
    ops_ += static_cast<int64_t>(graph.records.size());
    launches_ += compiled.launches;
    scratch_peak_ = std::max<int64_t>(scratch_peak_, compiled.workspace_bytes);
  }
  void synchronize() override {
    if (!session_) return;  // the GPU could not be opened
    session_->beside.join(session_->compute.stream);
    session_->staging.synchronize();
    session_->faults.raise(number_);
  }
  Counters counters() const override { return {ops_, launches_, scratch_peak_, waits_, 0}; }

 private:
  /// CUDA's current device belongs to the thread.
  void use() const { check(cudaSetDevice(index_), "opening the GPU"); }

  int index_;
  std::string name_, model_;
  Hardware hardware_;
  std::string isa_;
  std::unique_ptr<Session> session_;
  int64_t number_ = 0;  // of the op that runs, as the host counts: ops, uploads, reads and replays
  std::atomic<int64_t> ops_{0}, launches_{0}, scratch_peak_{0}, waits_{0};
};

}  // namespace

std::vector<std::string> devices() {
  std::string why;
  std::vector<std::string> models;
  const int count = count_devices(why);
  for (int i = 0; i < count; i++) models.push_back(model(i));
  return models;
}

std::string obstacle() {
  std::string why;
  count_devices(why);
  return why;
}

std::unique_ptr<Backend> make_backend(int index) {
  const std::string device = "device 'cuda:" + std::to_string(index) + "'";
  std::string why;
  const int count = count_devices(why);
  if (count == 0)
    throw Error("E_UNSUPPORTED", device + " cannot be opened: " + why,
                "open device 'cpu', or run on a machine with an NVIDIA GPU and its driver");
  if (index < 0 || index >= count)
    throw Error("E_UNSUPPORTED", device + " does not exist: this process sees " + std::to_string(count) +
                                     (count == 1 ? " GPU" : " GPUs") +
                                     ", the last is cuda:" + std::to_string(count - 1));
  return std::make_unique<CudaBackend>(index);
}

void make_current(int index) {
  check(cudaSetDevice(index), "choosing a GPU");
}

}  // namespace steptrain::cuda
