// The JavaScript face of one device. Arguments of the hot path travel in `commands`, a Float64Array that
// JavaScript fills and this side reads and fills back, so that queueing an op is one call without arguments:
//   [0] op   [1..24] tensor handles: inputs, outputs (0 absent, -1 allocate)   [25..40] scalars
//   back: the handles of new outputs, [41] the op's number, [42+6i] rank, four extents, dtype of output i
#pragma once

#include <napi.h>

#include <atomic>
#include <memory>
#include <string>

#include "core/device.h"

namespace steptrain::binding {

constexpr int kCommandTensors = 1;
constexpr int kCommandScalars = kCommandTensors + kMaxTensors;
constexpr int kCommandNumber = kCommandScalars + kMaxScalars;
constexpr int kCommandOutputs = kCommandNumber + 1;
constexpr int kCommandLength = kCommandOutputs + 6 * 8;

/// Everything that belongs to one Node environment (main thread or worker).
struct Environment;

class DeviceBinding : public Napi::ObjectWrap<DeviceBinding> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit DeviceBinding(const Napi::CallbackInfo& info);
  ~DeviceBinding() override;

  /// Cancels queued work and joins the device's threads. Idempotent; also called when the environment ends.
  void close();

 private:
  Napi::Value enqueue(const Napi::CallbackInfo& info);
  Napi::Value allocate(const Napi::CallbackInfo& info);
  Napi::Value view(const Napi::CallbackInfo& info);
  Napi::Value release(const Napi::CallbackInfo& info);
  Napi::Value upload(const Napi::CallbackInfo& info);
  Napi::Value download(const Napi::CallbackInfo& info);
  Napi::Value sum_across(const Napi::CallbackInfo& info);
  Napi::Value synchronize(const Napi::CallbackInfo& info);
  Napi::Value new_pool(const Napi::CallbackInfo& info);
  Napi::Value release_pool(const Napi::CallbackInfo& info);
  Napi::Value begin_capture(const Napi::CallbackInfo& info);
  Napi::Value end_capture(const Napi::CallbackInfo& info);
  Napi::Value replay(const Napi::CallbackInfo& info);
  Napi::Value release_graph(const Napi::CallbackInfo& info);
  Napi::Value scope(const Napi::CallbackInfo& info);
  Napi::Value info(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  Napi::Value reset_peak(const Napi::CallbackInfo& info);
  Napi::Value dispose(const Napi::CallbackInfo& info);

  Device& device();
  template <typename F>
  Napi::Value guard(const Napi::CallbackInfo& info, F body);

  std::unique_ptr<Device> device_;
  /// Number of tasks outside the queue that use the device's memory.
  std::shared_ptr<std::atomic<int>> beside_ = std::make_shared<std::atomic<int>>(0);
  Napi::Reference<Napi::Float64Array> commands_;
  double* command_ = nullptr;
};

}  // namespace steptrain::binding
