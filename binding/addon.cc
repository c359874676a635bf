// Entry point: what the addon is, and the device class.
#include <napi.h>

#include "binding/device.h"
#include "binding/environment.h"
#include "core/ops.h"
#include "cpu/runtime/backend.h"
#if defined(STEPTRAIN_CUDA)
#include "cuda/runtime/backend.h"
#endif

namespace {

using steptrain::binding::DeviceBinding;
using steptrain::binding::Environment;

Napi::Array strings(Napi::Env env, const std::vector<std::string>& list) {
  auto out = Napi::Array::New(env, list.size());
  for (uint32_t i = 0; i < list.size(); i++) out.Set(i, list[i]);
  return out;
}

/// signatures() -> the op list, as written in core/ops.cc
Napi::Value signatures(const Napi::CallbackInfo& info) {
  std::vector<std::string> list;
  for (const auto& op : steptrain::ops()) list.push_back(op.text);
  return strings(info.Env(), list);
}

/// isas() -> instruction sets of this processor and build, best first
Napi::Value isas(const Napi::CallbackInfo& info) {
  return strings(info.Env(), steptrain::cpu::available_isas());
}

/// cudaDevices() -> names, or undefined where the addon was built without CUDA
Napi::Value cuda_devices(const Napi::CallbackInfo& info) {
#if defined(STEPTRAIN_CUDA)
  return strings(info.Env(), steptrain::cuda::devices());
#else
  return info.Env().Undefined();
#endif
}

/// cudaObstacle() -> why cudaDevices() is empty, '' where it is not, undefined where the addon was built
/// without CUDA
Napi::Value cuda_obstacle(const Napi::CallbackInfo& info) {
#if defined(STEPTRAIN_CUDA)
  return Napi::String::New(info.Env(), steptrain::cuda::obstacle());
#else
  return info.Env().Undefined();
#endif
}

/// initialize(errorFactory)
Napi::Value initialize(const Napi::CallbackInfo& info) {
  info.Env().GetInstanceData<Environment>()->error_factory = Napi::Persistent(info[0].As<Napi::Function>());
  return info.Env().Undefined();
}

Napi::Object load(Napi::Env env, Napi::Object exports) {
  auto* environment = new Environment(env);
  env.SetInstanceData<Environment>(environment);
  const Napi::Function device = DeviceBinding::define(env);
  environment->device_class = Napi::Persistent(device);
  exports.Set("Device", device);
  exports.Set("signatures", Napi::Function::New<signatures>(env));
  exports.Set("isas", Napi::Function::New<isas>(env));
  exports.Set("cudaDevices", Napi::Function::New<cuda_devices>(env));
  exports.Set("cudaObstacle", Napi::Function::New<cuda_obstacle>(env));
  exports.Set("initialize", Napi::Function::New<initialize>(env));
  exports.Set("commandLength", steptrain::binding::kCommandLength);
  return exports;
}

}  // namespace

NODE_API_MODULE(steptrain, load)
