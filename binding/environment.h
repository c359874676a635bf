// State per Node environment: the error factory, the way back to its event loop,
// and the devices to close at its end.
#pragma once

#include <napi.h>

#include <set>
#include <string>

#include "core/record.h"

namespace steptrain::binding {

class DeviceBinding;

struct Environment {
  explicit Environment(Napi::Env env);
  ~Environment();

  /// Throws the JavaScript error that the factory makes of it.
  void raise(const Failure& failure);
  Napi::Value error_of(const Failure& failure);

  Napi::Env env;
  Napi::FunctionReference error_factory;  // (code, message, hint, location, op, number, scope) => Error
  Napi::FunctionReference device_class;
  napi_threadsafe_function settle = nullptr;
  int pending = 0;  // promises that keep the event loop alive
  std::set<DeviceBinding*> devices;
};

/// A promise settled from a thread of the queue: with an ArrayBuffer, or undefined.
class Promised final : public Completion {
 public:
  Promised(Environment& environment, Napi::Value result);
  void done(const Failure* failure) override;
  Napi::Promise promise() const { return deferred_.Promise(); }

  /// On the event loop.
  struct Outcome {
    Napi::Promise::Deferred deferred;
    Napi::Reference<Napi::Value> result;
    std::unique_ptr<Failure> failure;
  };
  static void settle(napi_env env, napi_value, void* context, void* data);

 private:
  napi_threadsafe_function settle_;
  Napi::Promise::Deferred deferred_;
  std::unique_ptr<Outcome> outcome_;
};

Failure failure_of(const Error& error);

}  // namespace steptrain::binding
