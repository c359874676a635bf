#include "binding/device.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "binding/environment.h"
#include "binding/waiting.h"
#include "carriers/across.h"
#include "carriers/communicators.h"
#include "cpu/runtime/backend.h"
#if defined(STEPTRAIN_CUDA)
#include "cuda/runtime/backend.h"
#endif

namespace steptrain::binding {
namespace {

std::vector<int64_t> shape_of(const Napi::Value& value) {
  const auto array = value.As<Napi::Array>();
  if (array.Length() > kMaxRank) throw Error("E_SHAPE", "a tensor has at most 4 dimensions");
  std::vector<int64_t> shape;
  for (uint32_t i = 0; i < array.Length(); i++) {
    const double extent = array.Get(i).ToNumber().DoubleValue();
    if (!(std::trunc(extent) == extent && std::abs(extent) < 0x1p53)) {
      throw Error("E_SHAPE", "a shape has whole numbers as extents, found " + std::to_string(extent));
    }
    shape.push_back(static_cast<int64_t>(extent));
  }
  return shape;
}

std::unique_ptr<Backend> backend_of(const std::string& name, int threads, const std::string& isa) {
  if (name == "cpu") return cpu::make_backend(threads, isa);
  if (name == "cuda" || name.rfind("cuda:", 0) == 0) {
#if defined(STEPTRAIN_CUDA)
    return cuda::make_backend(name == "cuda" ? 0 : std::atoi(name.c_str() + 5));
#else
    throw Error("E_UNSUPPORTED",
                "device '" + name + "' needs an addon built with CUDA, which this one is not",
                "install the CUDA toolkit (nvcc) and run: npx steptrain build --cuda");
#endif
  }
  throw Error("E_UNSUPPORTED", "unknown device '" + name + "': expected cpu, cuda or cuda:<index>");
}

Handle handle_of(const Napi::Value& value) {
  return value.As<Napi::Number>().Int64Value();
}

}  // namespace

Napi::Function DeviceBinding::define(Napi::Env env) {
  using D = DeviceBinding;
  return DefineClass(
      env, "Device",
      {InstanceMethod<&D::enqueue>("enqueue"), InstanceMethod<&D::allocate>("allocate"),
       InstanceMethod<&D::view>("view"), InstanceMethod<&D::release>("release"),
       InstanceMethod<&D::upload>("upload"), InstanceMethod<&D::download>("download"),
       InstanceMethod<&D::sum_across>("sumAcross"), InstanceMethod<&D::synchronize>("synchronize"),
       InstanceMethod<&D::new_pool>("newPool"), InstanceMethod<&D::release_pool>("releasePool"),
       InstanceMethod<&D::begin_capture>("beginCapture"), InstanceMethod<&D::end_capture>("endCapture"),
       InstanceMethod<&D::replay>("replay"), InstanceMethod<&D::release_graph>("releaseGraph"),
       InstanceMethod<&D::scope>("scope"), InstanceMethod<&D::info>("info"),
       InstanceMethod<&D::stats>("stats"), InstanceMethod<&D::reset_peak>("resetPeak"),
       InstanceMethod<&D::dispose>("dispose")});
}

/// new Device(name, threads, isa, memoryLimit, commands)
DeviceBinding::DeviceBinding(const Napi::CallbackInfo& info) : Napi::ObjectWrap<DeviceBinding>(info) {
  auto& environment = *info.Env().GetInstanceData<Environment>();
  const auto commands = info[4].As<Napi::Float64Array>();
  if (!info[4].IsTypedArray() || commands.ElementLength() < kCommandLength) {
    environment.raise(
        {"E_RANGE", "Device: commands must be a Float64Array of the documented length", "", "", "", "", 0});
    return;
  }
  commands_ = Napi::Persistent(commands);
  command_ = commands_.Value().Data();
  guard(info, [&] {
    auto backend = backend_of(info[0].As<Napi::String>(), info[1].As<Napi::Number>().Int32Value(),
                              info[2].As<Napi::String>());
    const int64_t limit = info[3].IsUndefined() ? kNoLimit : info[3].As<Napi::Number>().Int64Value();
    device_ = std::make_unique<Device>(std::move(backend), limit);
    environment.devices.insert(this);
    return info.Env().Undefined();
  });
}

DeviceBinding::~DeviceBinding() {
  close();
}

void DeviceBinding::close() {
  if (!device_) return;
  while (*beside_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (auto* environment = Env().GetInstanceData<Environment>()) environment->devices.erase(this);
  device_.reset();
}

Device& DeviceBinding::device() {
  if (!device_) throw Error("E_DISPOSED", "the device was used after it was disposed");
  return *device_;
}

template <typename F>
Napi::Value DeviceBinding::guard(const Napi::CallbackInfo& info, F body) {
  try {
    return body();
  } catch (const Error& error) {
    info.Env().GetInstanceData<Environment>()->raise(failure_of(error));
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& error) {
    info.Env().GetInstanceData<Environment>()->raise(failure_of(Error("E_DEVICE", error.what())));
  }
  return info.Env().Undefined();
}

Napi::Value DeviceBinding::enqueue(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    const int op = static_cast<int>(command_[0]);
    if (op < 0 || op >= static_cast<int>(ops().size())) throw Error("E_RANGE", "enqueue: no such op");
    const Signature& signature = ops()[static_cast<size_t>(op)];
    Handle handles[kMaxTensors];
    const int n = signature.tensors();
    for (int i = 0; i < n; i++) handles[i] = static_cast<Handle>(command_[kCommandTensors + i]);
    const int inputs = static_cast<int>(signature.inputs.size());
    Handle given[kMaxTensors];
    std::copy(handles, handles + n, given);
    command_[kCommandNumber] = static_cast<double>(device().enqueue(op, handles, command_ + kCommandScalars));
    double* out = command_ + kCommandOutputs;
    for (int i = inputs; i < n; i++, out += 6) {
      if (given[i] != kAllocate) continue;
      command_[kCommandTensors + i] = static_cast<double>(handles[i]);
      const TensorView& view = device().tensor(handles[i]);
      out[0] = view.rank;
      for (int axis = 0; axis < kMaxRank; axis++) out[1 + axis] = static_cast<double>(view[axis]);
      out[5] = static_cast<double>(view.dtype);
    }
    return Napi::Value();
  });
}

/// allocate(dtype, shape) -> handle
Napi::Value DeviceBinding::allocate(const Napi::CallbackInfo& info) {
  return guard(info, [&] {
    const auto dtype = static_cast<DType>(info[0].As<Napi::Number>().Int32Value());
    return Napi::Number::New(info.Env(), static_cast<double>(device().allocate(dtype, shape_of(info[1]))));
  });
}

/// view(handle, offset, shape) -> handle
Napi::Value DeviceBinding::view(const Napi::CallbackInfo& info) {
  return guard(info, [&] {
    const int64_t offset = info[1].As<Napi::Number>().Int64Value();
    return Napi::Number::New(
        info.Env(), static_cast<double>(device().view(handle_of(info[0]), offset, shape_of(info[2]))));
  });
}

Napi::Value DeviceBinding::release(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    if (device_) device_->release(handle_of(info[0]));
    return Napi::Value();
  });
}

/// upload(handle, typedArray): the bytes are copied before it returns.
Napi::Value DeviceBinding::upload(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    const auto array = info[1].As<Napi::TypedArray>();
    const auto* bytes = static_cast<const char*>(array.ArrayBuffer().Data()) + array.ByteOffset();
    device().upload(handle_of(info[0]), bytes, static_cast<int64_t>(array.ByteLength()));
    return Napi::Value();
  });
}

/// download(handle) -> Promise<ArrayBuffer>
Napi::Value DeviceBinding::download(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    const Handle handle = handle_of(info[0]);
    const int64_t size = device().tensor(handle).bytes();
    const auto buffer = Napi::ArrayBuffer::New(info.Env(), static_cast<size_t>(size));
    auto promised = std::make_unique<Promised>(*info.Env().GetInstanceData<Environment>(), buffer);
    const auto promise = promised->promise();
    device().download(handle, const_cast<Napi::ArrayBuffer&>(buffer).Data(), std::move(promised));
    return promise;
  });
}

/// sumAcross(communicator, rows, result, scratch, counts, begins, pairs, root, wanted) -> Promise<void>: what the tensors hold must
/// be computed, and nothing that is queued may use them before it resolves.
Napi::Value DeviceBinding::sum_across(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    if (device().queue().backend().info().name != "cpu")
      throw Error("E_UNSUPPORTED", "sumAcross is for the host's memory; on a GPU the sum is made of ops");
    const auto floats = [&](const Napi::Value& handle) -> const TensorView& {
      const TensorView& view = device().tensor(handle_of(handle));
      if (view.dtype != DType::f32) throw Error("E_DTYPE", "sumAcross adds f32");
      return view;
    };
    const auto numbers = [](const Napi::Value& value) {
      const auto array = value.As<Napi::Array>();
      std::vector<int64_t> all;
      for (uint32_t i = 0; i < array.Length(); i++) all.push_back(array.Get(i).ToNumber().Int64Value());
      return all;
    };
    PieceSum piece;
    const TensorView& result = floats(info[2]);
    const TensorView& scratch = floats(info[3]);
    piece.result = const_cast<float*>(result.as<float>());
    piece.scratch = const_cast<float*>(scratch.as<float>());
    piece.scratch_length = scratch.numel();
    piece.begins = numbers(info[5]);
    if (piece.begins.empty() || piece.begins.back() != result.numel())
      throw Error("E_SHAPE", "sumAcross: the parts are not those of the piece");
    for (const int64_t row : numbers(info[1])) {
      const TensorView& view = floats(Napi::Number::New(info.Env(), static_cast<double>(row)));
      if (view.numel() != result.numel())
        throw Error("E_SHAPE", "sumAcross: a row has another length than the piece");
      piece.rows.push_back(const_cast<float*>(view.as<float>()));
    }
    for (const int64_t count : numbers(info[4])) piece.counts.push_back(static_cast<int>(count));
    const auto pairs = numbers(info[6]);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2)
      piece.pairs.emplace_back(static_cast<int>(pairs[i]), static_cast<int>(pairs[i + 1]));
    piece.root = info[7].As<Napi::Number>();
    const auto wanted = numbers(info[8]);
    for (size_t i = 0; i + 1 < wanted.size(); i += 2) piece.wanted.emplace_back(wanted[i], wanted[i + 1]);
    const int64_t id = info[0].As<Napi::Number>().Int64Value();
    ++*beside_;
    return Waiting::start(info.Env(), [id, piece, beside = beside_]() -> Waiting::Result {
      struct Ending {
        std::atomic<int>& running;
        ~Ending() { --running; }
      } ending{*beside};
      steptrain::sum_across(communicator(id), piece);
      return [](Napi::Env env) { return env.Undefined(); };
    });
  });
}

Napi::Value DeviceBinding::synchronize(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    Device& open = device();
    auto promised = std::make_unique<Promised>(*info.Env().GetInstanceData<Environment>(), Napi::Value());
    const auto promise = promised->promise();
    open.signal(std::move(promised));
    return promise;
  });
}

/// newPool() -> id: memory that captures share.
Napi::Value DeviceBinding::new_pool(const Napi::CallbackInfo& info) {
  return guard(info, [&] { return Napi::Number::New(info.Env(), static_cast<double>(device().new_pool())); });
}

Napi::Value DeviceBinding::release_pool(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    if (device_) device_->release_pool(info[0].As<Napi::Number>().Int64Value());
    return Napi::Value();
  });
}

/// beginCapture(pool): 0 for one of its own.
Napi::Value DeviceBinding::begin_capture(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    device().begin_capture(info[0].As<Napi::Number>().Int64Value());
    return Napi::Value();
  });
}

/// endCapture(keep) -> graph id
Napi::Value DeviceBinding::end_capture(const Napi::CallbackInfo& info) {
  return guard(info, [&] {
    return Napi::Number::New(info.Env(), static_cast<double>(device().end_capture(info[0].ToBoolean())));
  });
}

Napi::Value DeviceBinding::replay(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    device().replay(info[0].As<Napi::Number>().Int64Value());
    return Napi::Value();
  });
}

Napi::Value DeviceBinding::release_graph(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    if (device_) device_->release_graph(info[0].As<Napi::Number>().Int64Value());
    return Napi::Value();
  });
}

/// scope(label | id) -> id: makes it the label of the ops queued from now on.
Napi::Value DeviceBinding::scope(const Napi::CallbackInfo& info) {
  return guard(info, [&] {
    const int label = info[0].IsString() ? device().queue().scope_label(info[0].As<Napi::String>())
                                         : info[0].As<Napi::Number>().Int32Value();
    device().set_scope(label);
    return Napi::Number::New(info.Env(), label);
  });
}

Napi::Value DeviceBinding::info(const Napi::CallbackInfo& info) {
  return guard(info, [&] {
    const BackendInfo b = device().queue().backend().info();
    auto out = Napi::Object::New(info.Env());
    out.Set("name", b.name);
    out.Set("description", b.description);
    out.Set("isa", b.isa);
    out.Set("threads", b.threads);
    out.Set("memoryTotal", static_cast<double>(b.memory_total));
    out.Set("memoryFree", static_cast<double>(b.memory_free));
    return out;
  });
}

Napi::Value DeviceBinding::stats(const Napi::CallbackInfo& info) {
  return guard(info, [&] {
    const AllocatorStats& memory = device().memory();
    const Counters counters = device().queue().backend().counters();
    auto out = Napi::Object::New(info.Env());
    out.Set("liveBytes", static_cast<double>(memory.live));
    out.Set("peakBytes", static_cast<double>(memory.peak));
    out.Set("reservedBytes", static_cast<double>(memory.reserved));
    out.Set("tensors", static_cast<double>(device().tensors()));
    out.Set("ops", static_cast<double>(counters.ops));
    out.Set("launches", static_cast<double>(counters.launches));
    out.Set("kernelSeconds", counters.kernel_seconds);
    out.Set("scratchBytes", static_cast<double>(counters.scratch_bytes));
    out.Set("waits", static_cast<double>(counters.waits));
    return out;
  });
}

Napi::Value DeviceBinding::reset_peak(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    device().reset_peak();
    return Napi::Value();
  });
}

Napi::Value DeviceBinding::dispose(const Napi::CallbackInfo& info) {
  return guard(info, [&]() -> Napi::Value {
    close();
    return Napi::Value();
  });
}

}  // namespace steptrain::binding
