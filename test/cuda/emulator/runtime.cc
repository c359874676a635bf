// The runtime: memory, streams, events and graphs. Queued work runs when something waits for it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "cuda.h"
#include "emulator.h"
#include "launch.h"

namespace emulator {

/// A kernel, or what else a stream runs.
struct Work {
  std::function<void()> run;
  std::shared_ptr<Launch> launch;
};

/// An event as it was recorded, which lies in its stream until the stream comes to it.
struct Recorded {
  Stream* stream;
  bool pending = true;
};
struct Event {
  std::shared_ptr<Recorded> last;
  bool pending() const { return last && last->pending; }
};
struct Graph {
  std::vector<Work> work;
  bool invalidated = false;  // a forbidden call was made during its capture
};
struct Stream {
  int device = 0;
  std::deque<Work> queued;
  Graph* capture = nullptr;
};

namespace {

constexpr size_t kMemory = size_t{2} << 30;
constexpr size_t kPlaces = 4 * kMemory;  // of addresses, so that gaps do not matter

std::recursive_mutex lock;
std::map<void*, size_t> memory;
size_t used = 0;
std::vector<Stream*> streams;
thread_local int current_device = 0;
thread_local Stream* capturing = nullptr;
std::vector<Stream*> captures;  // open ones, of all threads
thread_local cudaError_t last = cudaSuccess;

cudaError_t fail(cudaError_t error) {
  return last = error;
}

int device_count() {
  const char* text = std::getenv("STEPTRAIN_EMULATED_GPUS");  // that share one memory
  return text ? std::atoi(text) : 1;
}

int driver_version() {
  const char* text = std::getenv("STEPTRAIN_EMULATED_DRIVER");
  return text ? std::atoi(text) : CUDART_VERSION;
}

/// 80 unless STEPTRAIN_EMULATED_CAPABILITY says otherwise: 10 · major + minor, as in sm_90.
int capability() {
  const char* text = std::getenv("STEPTRAIN_EMULATED_CAPABILITY");
  return text ? std::atoi(text) : 80;
}

/// Bytes that a block may ask for: of Hopper and sm_100 227 KiB, and 99 KiB of sm_86, sm_89 and sm_120. sm_80 would have more,
/// but its kernels must fit into these too.
int shared_per_block() {
  return (capability() / 10 == 9 || capability() / 10 == 10 ? 227 : 99) << 10;
}
/// Static variables count too. The emulator does not know a kernel's: as many bytes as Hopper's kernels leave for them.
bool fits_in_shared(size_t dynamic) {
  constexpr size_t kStatic = 512;
  return dynamic == 0 || dynamic + kStatic <= static_cast<size_t>(shared_per_block());
}

/// Keeps a capture open for the milliseconds of STEPTRAIN_EMULATED_CAPTURE, so that other threads meet it.
void linger() {
  const char* text = std::getenv("STEPTRAIN_EMULATED_CAPTURE");
  if (text) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(text)));
}

/// Keeps the GPU busy: a wait for it lasts while the file that STEPTRAIN_EMULATED_BUSY names exists. Returns whether
/// it had to wait: before the host hears of it, the GPU then goes on with what was launched meanwhile.
bool stay_busy() {
  const char* path = std::getenv("STEPTRAIN_EMULATED_BUSY");
  bool busy = false;
  while (path && *path && std::filesystem::exists(path)) {
    busy = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return busy;
}

/// Appends a line to the file that the variable names.
void note(const char* variable, const char* line) {
  const char* path = std::getenv(variable);
  if (!path || !*path) return;
  if (std::FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s\n", line);
    std::fclose(file);
  }
}

/// Called where a GPU might make the host wait.
void holds_up(const char* call) {
  note("STEPTRAIN_EMULATED_TRACE", call);
}

/// Whether a call that waits for the whole device must fail: the device is a handle that encompasses every
/// stream of it, so none may be under capture, whichever thread captures and in whatever mode (CUDA
/// Programming Guide, Prohibited and Unhandled Operations). Such a call also invalidates the captures.
bool capture_forbids_device_wide() {
  for (Stream* stream : captures) stream->capture->invalidated = true;
  return !captures.empty();
}

/// Refuses work for a stream of a GPU other than the thread's current one, as CUDA does. Ends the process, since
/// not every caller checks the status.
void refuse_foreign(const Stream* stream, const char* call) {
  if (stream->device == current_device) return;
  std::fprintf(stderr, "emulated GPU: %s for cuda:%d while cuda:%d is current\n", call, stream->device, current_device);
  std::abort();
}

void run_next(Stream* stream) {
  const Work work = std::move(stream->queued.front());
  stream->queued.pop_front();
  if (!work.launch) return work.run();
  if (!stream->queued.empty()) {
    const auto& next = stream->queued.front().launch;
    if (next && next->early) {
      note("STEPTRAIN_EMULATED_EARLY", "started early");
      start_kernel(*next);
    }
  }
  run_kernel(*work.launch);
}
void drain(Stream* stream) {
  while (!stream->queued.empty()) run_next(stream);
}
/// Runs a stream until it has come to an event.
void run_to(const Recorded& event) {
  while (event.pending && !event.stream->queued.empty()) run_next(event.stream);
}
void drain_all() {
  for (Stream* stream : streams) drain(stream);
}

/// Whether it runs beside another one of its GPU.
bool is_second(const Stream* stream) {
  for (const Stream* other : streams)
    if (other->device == stream->device) return other != stream;
  return false;
}
/// With STEPTRAIN_EMULATED_SECOND=early, work of a second stream runs as soon as it is queued; else when something waits for it.
/// Between the two lies what a GPU may do.
bool runs_at_once() {
  const char* text = std::getenv("STEPTRAIN_EMULATED_SECOND");
  return text && std::string_view(text) == "early";
}

void push(Stream* stream, Work work);
void push(Stream* stream, std::function<void()> run) {
  push(stream, Work{std::move(run), nullptr});
}
void push(Stream* stream, Work work) {
  if (stream->capture) {
    stream->capture->work.push_back(std::move(work));
  } else {
    stream->queued.push_back(std::move(work));
    if (is_second(stream) && runs_at_once()) drain(stream);
  }
}

char* places() {
  static char* const all = static_cast<char*>(
      mmap(nullptr, kPlaces, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return all;
}

cudaError_t allocate(void** data, size_t bytes) {
  if (used + bytes > kMemory) return fail(cudaErrorMemoryAllocation);
  const size_t rounded = bytes ? (bytes + 255) / 256 * 256 : 256;
  char* at = places();
  for (const auto& [start, size] : memory) {
    if (at + rounded <= static_cast<char*>(start)) break;
    at = static_cast<char*>(start) + size;
  }
  if (at + rounded > places() + kPlaces) return fail(cudaErrorMemoryAllocation);
  *data = at;
  std::memset(*data, 0xff, rounded);
  memory[*data] = rounded;
  used += rounded;
  return cudaSuccess;
}

void free_now(void* data) {
  const auto found = memory.find(data);
  if (found == memory.end()) {
    std::fprintf(stderr, "emulated GPU: freed memory that was not allocated\n");
    std::abort();
  }
  std::memset(data, 0xff, found->second);
  used -= found->second;
  memory.erase(found);
}

}  // namespace

bool in_memory(const void* at) {
  return at >= places() && at < places() + kPlaces;
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> kernel) {
  const std::lock_guard guard(lock);
  refuse_foreign(config.stream, "a launch");
  if (!fits_in_shared(config.dynamicSmemBytes)) return fail(cudaErrorInvalidValue);
  // The attribute's memory is the caller's.
  const bool early = config.numAttrs == 1 && config.attrs->val.programmaticStreamSerializationAllowed != 0;
  push(config.stream, Work{nullptr, std::make_shared<Launch>(Launch{config, std::move(kernel), early, nullptr})});
  return cudaSuccess;
}

}  // namespace emulator

using namespace emulator;  // the functions below are the global ones that CUDA declares

/// For a library that stands for NCCL (test/carriers/mock-nccl.cc), whose copies belong into a stream.
extern "C" __attribute__((visibility("default"))) void emulated_queue(void* stream, void (*run)(void*), void* with) {
  const std::lock_guard guard(lock);
  refuse_foreign(static_cast<Stream*>(stream), "a collective");
  push(static_cast<Stream*>(stream), [run, with] { run(with); });
}

cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return "an emulated error";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "cudaErrorEmulated";
  }
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (driver_version() < CUDART_VERSION) return fail(cudaErrorInsufficientDriver);
  *count = device_count();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= device_count()) return fail(cudaErrorInvalidValue);
  current_device = index;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = which == cudaDevAttrMultiProcessorCount            ? 3
           : which == cudaDevAttrComputeCapabilityMajor       ? capability() / 10
           : which == cudaDevAttrComputeCapabilityMinor       ? capability() % 10
           : which == cudaDevAttrMaxSharedMemoryPerBlockOptin ? shared_per_block()
                                                              : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard guard(lock);
  *free = kMemory - used;
  *total = kMemory;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard guard(lock);
  holds_up("cudaDeviceSynchronize");
  if (capture_forbids_device_wide()) return fail(cudaErrorStreamCaptureUnsupported);
  drain_all();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  const std::lock_guard guard(lock);
  holds_up("cudaMalloc");
  return capture_forbids_device_wide() ? fail(cudaErrorStreamCaptureUnsupported) : allocate(data, bytes);
}
cudaError_t cudaFree(void* data) {
  const std::lock_guard guard(lock);
  holds_up("cudaFree");
  if (capture_forbids_device_wide()) return fail(cudaErrorStreamCaptureUnsupported);  // it waits for the device
  drain_all();
  if (data) free_now(data);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  const std::lock_guard guard(lock);
  refuse_foreign(stream, "cudaMallocAsync");
  return stream->capture ? fail(cudaErrorStreamCaptureUnsupported) : allocate(data, bytes);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const std::lock_guard guard(lock);
  refuse_foreign(stream, "cudaFreeAsync");
  if (stream->capture) return fail(cudaErrorStreamCaptureUnsupported);
  push(stream, [data] { free_now(data); });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  const std::lock_guard guard(lock);
  holds_up("cudaHostAlloc");
  if (capture_forbids_device_wide()) return fail(cudaErrorStreamCaptureUnsupported);
  *data = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  const std::lock_guard guard(lock);
  holds_up("cudaFreeHost");
  if (capture_forbids_device_wide()) return fail(cudaErrorStreamCaptureUnsupported);  // as cudaFree
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** mapped, void* data, unsigned) {
  *mapped = data;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  const std::lock_guard guard(lock);
  holds_up("cudaMemset");
  if (capture_forbids_device_wide()) return fail(cudaErrorStreamCaptureUnsupported);  // on the legacy stream
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  const std::lock_guard guard(lock);
  push(stream, [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const std::lock_guard guard(lock);
  push(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard guard(lock);
  *stream = new Stream;
  (*stream)->device = current_device;
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard guard(lock);
  drain(stream);
  std::erase(streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard guard(lock);
  holds_up("cudaStreamSynchronize");
  if (capturing) return fail(cudaErrorStreamCaptureUnsupported);
  drain(stream);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard guard(lock);
  drain_all();
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard guard(lock);
  event->last = std::make_shared<Recorded>(Recorded{stream});
  push(stream, [recorded = event->last] { recorded->pending = false; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard guard(lock);
  return event->pending() ? fail(cudaErrorNotReady) : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const bool busy = stay_busy();
  const std::lock_guard guard(lock);
  holds_up("cudaEventSynchronize");
  if (capturing) return fail(cudaErrorStreamCaptureUnsupported);
  if (busy) drain_all();
  if (event->pending()) run_to(*std::shared_ptr(event->last));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard guard(lock);
  refuse_foreign(stream, "cudaStreamWaitEvent");
  if (event->pending()) push(stream, [recorded = event->last] { run_to(*recorded); });
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard guard(lock);
  stream->capture = new Graph;
  capturing = stream;
  captures.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  linger();
  const std::lock_guard guard(lock);
  *graph = std::exchange(stream->capture, nullptr);
  capturing = nullptr;
  std::erase(captures, stream);
  if (!(*graph)->invalidated) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  return fail(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new Graph{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::lock_guard guard(lock);
  refuse_foreign(stream, "cudaGraphLaunch");
  for (const Work& work : executable->work) push(stream, work);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  const std::lock_guard guard(lock);
  holds_up("cudaFuncGetAttributes");  // loads the kernel, for which the driver may wait for the context
  attributes->sharedSizeBytes = 0;
  attributes->ptxVersion = capability();
  return capture_forbids_device_wide() ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int bytes) {
  return fits_in_shared(static_cast<size_t>(bytes)) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  // The driver's checks of a matrix of 16-bit elements in rows of 128 swizzled bytes.
  const bool fits = rank == 2 && reinterpret_cast<uintptr_t>(data) % 16 == 0 && strides[0] % 16 == 0 &&
                    strides[0] == 2 * extents[0] && extents[0] > 0 && extents[1] > 0 && box[0] * 2 <= 128 &&
                    box[1] <= 256 && steps[0] == 1 && steps[1] == 1;
  if (!fits) return CUDA_ERROR_INVALID_VALUE;
  // The driver does not check this; on a GPU a read outside would fault.
  const auto after = memory.upper_bound(data);
  if (after == memory.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [start, size] = *std::prev(after);
  if (static_cast<char*>(data) + strides[0] * extents[1] > static_cast<char*>(start) + size)
    return CUDA_ERROR_INVALID_VALUE;
  *map = {static_cast<const uint16_t*>(data), static_cast<int64_t>(extents[1]), static_cast<int64_t>(extents[0]),
          box[1], box[0], {}};
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::string_view(name) == "cuTensorMapEncodeTiled";
  *found = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
