#include "binding/carriers.h"

#include <algorithm>
#include <cstring>

#include "binding/waiting.h"
#include "carriers/communicators.h"
#include "carriers/nccl.h"
#include "carriers/shared.h"
#include "core/error.h"
#if defined(STEPTRAIN_CUDA)
#include "cuda/runtime/backend.h"
#endif

namespace steptrain::binding {
namespace {

Waiting::Result opened(const steptrain_carrier& carrier) {
  const int64_t id = add_communicator(carrier);
  return [=](Napi::Env env) {
    auto out = Napi::Object::New(env);
    out.Set("communicator", static_cast<double>(id));
    out.Set("rank", carrier.rank);
    out.Set("size", carrier.size);
    return out;
  };
}

int64_t communicator_of(const Napi::CallbackInfo& info) {
  return info[0].As<Napi::Number>().Int64Value();
}

}  // namespace

Napi::Value open_plugin_carrier(const Napi::CallbackInfo& info) {
  const std::string path = info[0].As<Napi::String>();
  return Waiting::start(info.Env(), [=] { return opened(open_plugin(path)); });
}

Napi::Value open_shared_carrier(const Napi::CallbackInfo& info) {
  const std::string path = info[0].As<Napi::String>();
  const int rank = info[1].As<Napi::Number>(), size = info[2].As<Napi::Number>();
  return Waiting::start(info.Env(), [=] { return opened(open_shared(path, rank, size)); });
}

Napi::Value nccl_unique_id(const Napi::CallbackInfo& info) {
  const std::string library = info[0].As<Napi::String>();
  return Waiting::start(info.Env(), [=]() -> Waiting::Result {
    const NcclId id = nccl_id(library);
    return [=](Napi::Env env) {
      auto bytes = Napi::ArrayBuffer::New(env, id.size());
      std::memcpy(bytes.Data(), id.data(), id.size());
      return bytes;
    };
  });
}

Napi::Value open_nccl_carrier(const Napi::CallbackInfo& info) {
  const std::string library = info[0].As<Napi::String>();
  auto bytes = info[1].As<Napi::ArrayBuffer>();
  NcclId id{};
  std::memcpy(id.data(), bytes.Data(), std::min(id.size(), bytes.ByteLength()));
  const int rank = info[2].As<Napi::Number>(), size = info[3].As<Napi::Number>(),
            gpu = info[4].As<Napi::Number>();
  return Waiting::start(info.Env(), [=] {
#if defined(STEPTRAIN_CUDA)
    if (gpu >= 0) cuda::make_current(gpu);
#endif
    static_cast<void>(gpu);
    return opened(open_nccl(library, id, rank, size));
  });
}

Napi::Value cancel_carrier(const Napi::CallbackInfo& info) {
  cancel_communicator(communicator_of(info));
  return info.Env().Undefined();
}

Napi::Value close_carrier(const Napi::CallbackInfo& info) {
  const int64_t id = communicator_of(info);
  return Waiting::start(info.Env(), [=]() -> Waiting::Result {
    close_communicator(id);
    return [](Napi::Env env) { return env.Undefined(); };
  });
}

}  // namespace steptrain::binding
