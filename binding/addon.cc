// Entry point: the exports of the addon, and the device class.
#include <napi.h>

#include "binding/carriers.h"
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

Napi::Array tensors(Napi::Env env, const std::vector<steptrain::TensorParam>& list) {
  auto out = Napi::Array::New(env, list.size());
  for (uint32_t i = 0; i < list.size(); i++) {
    auto tensor = Napi::Object::New(env);
    tensor.Set("name", list[i].name);
    tensor.Set("optional", list[i].optional);
    out.Set(i, tensor);
  }
  return out;
}

Napi::Array scalars(Napi::Env env, const std::vector<steptrain::ScalarParam>& list) {
  auto out = Napi::Array::New(env, list.size());
  for (uint32_t i = 0; i < list.size(); i++) {
    auto scalar = Napi::Object::New(env);
    scalar.Set("name", list[i].name);
    scalar.Set("type", list[i].type);
    scalar.Set("names", strings(env, list[i].names));
    if (list[i].fallback) scalar.Set("fallback", *list[i].fallback);
    out.Set(i, scalar);
  }
  return out;
}

/// signatures() -> the op list of core/ops.cc, by number: { name, text, inputs, outputs, scalars }
Napi::Value signatures(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto list = Napi::Array::New(env, steptrain::ops().size());
  for (uint32_t i = 0; i < list.Length(); i++) {
    const steptrain::Signature& signature = steptrain::ops()[i];
    auto op = Napi::Object::New(env);
    op.Set("name", signature.name);
    op.Set("text", signature.text);
    op.Set("inputs", tensors(env, signature.inputs));
    op.Set("outputs", tensors(env, signature.outputs));
    op.Set("scalars", scalars(env, signature.scalars));
    list.Set(i, op);
  }
  return list;
}

/// isas() -> instruction sets of this processor and build, best first
Napi::Value isas(const Napi::CallbackInfo& info) {
  return strings(info.Env(), steptrain::cpu::available_isas());
}

/// unbuiltIsas() -> those of this processor that this build leaves out, best first
Napi::Value unbuilt_isas(const Napi::CallbackInfo& info) {
  return strings(info.Env(), steptrain::cpu::unbuilt_isas());
}

/// cudaDevices() -> names, or undefined where the addon was built without CUDA
Napi::Value cuda_devices(const Napi::CallbackInfo& info) {
#if defined(STEPTRAIN_CUDA)
  return strings(info.Env(), steptrain::cuda::devices());
#else
  return info.Env().Undefined();
#endif
}

/// cudaObstacle() -> why cudaDevices() is empty, '' where it is not,
/// undefined where the addon was built without CUDA
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
  exports.Set("unbuiltIsas", Napi::Function::New<unbuilt_isas>(env));
  exports.Set("cudaDevices", Napi::Function::New<cuda_devices>(env));
  exports.Set("cudaObstacle", Napi::Function::New<cuda_obstacle>(env));
  exports.Set("openPlugin", Napi::Function::New<steptrain::binding::open_plugin_carrier>(env));
  exports.Set("openShared", Napi::Function::New<steptrain::binding::open_shared_carrier>(env));
  exports.Set("ncclId", Napi::Function::New<steptrain::binding::nccl_unique_id>(env));
  exports.Set("openNccl", Napi::Function::New<steptrain::binding::open_nccl_carrier>(env));
  exports.Set("cancelCarrier", Napi::Function::New<steptrain::binding::cancel_carrier>(env));
  exports.Set("closeCarrier", Napi::Function::New<steptrain::binding::close_carrier>(env));
  exports.Set("initialize", Napi::Function::New<initialize>(env));
  exports.Set("commandLength", steptrain::binding::kCommandLength);
  return exports;
}

}  // namespace

NODE_API_MODULE(steptrain, load)
