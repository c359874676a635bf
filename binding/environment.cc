#include "binding/environment.h"

#include "binding/device.h"

namespace steptrain::binding {

Environment::Environment(Napi::Env env) : env(env) {
  napi_value name;
  napi_create_string_utf8(env, "steptrain", NAPI_AUTO_LENGTH, &name);
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, this,
                                  &Promised::settle, &settle);
  napi_unref_threadsafe_function(env, settle);  // an idle device does not keep the process alive
  napi_add_env_cleanup_hook(
      env,
      [](void* self) {
        auto* environment = static_cast<Environment*>(self);
        const auto devices = environment->devices;
        for (DeviceBinding* device : devices) device->close();
      },
      this);
}

Environment::~Environment() {
  error_factory.SuppressDestruct();
  device_class.SuppressDestruct();
}

Napi::Value Environment::error_of(const Failure& f) {
  const auto text = [this](const std::string& s) -> napi_value { return Napi::String::New(env, s); };
  return error_factory.Call({text(f.code), text(f.message), text(f.hint), text(f.location), text(f.op),
                             Napi::Number::New(env, static_cast<double>(f.number)), text(f.scope)});
}

void Environment::raise(const Failure& failure) {
  napi_throw(env, error_of(failure));
}

Failure failure_of(const Error& error) {
  Failure failure;
  failure.explain(error);
  return failure;
}

Promised::Promised(Environment& environment, Napi::Value result)
    : settle_(environment.settle), deferred_(Napi::Promise::Deferred::New(environment.env)) {
  outcome_.reset(new Outcome{deferred_, {}, nullptr});
  if (!result.IsEmpty()) outcome_->result = Napi::Persistent(result);
  if (environment.pending++ == 0) napi_ref_threadsafe_function(environment.env, environment.settle);
}

void Promised::done(const Failure* failure) {
  if (failure) outcome_->failure = std::make_unique<Failure>(*failure);
  Outcome* outcome = outcome_.release();
  if (napi_call_threadsafe_function(settle_, outcome, napi_tsfn_nonblocking) != napi_ok) {
    outcome->result.SuppressDestruct();  // the environment is gone and the promise with it
    delete outcome;
  }
}

void Promised::settle(napi_env env, napi_value, void* context, void* data) {
  std::unique_ptr<Outcome> outcome(static_cast<Outcome*>(data));
  if (!env) {
    outcome->result.SuppressDestruct();
    return;
  }
  auto& environment = *static_cast<Environment*>(context);
  try {
    const Napi::HandleScope scope(environment.env);
    if (--environment.pending == 0) napi_unref_threadsafe_function(env, environment.settle);
    if (outcome->failure) {
      outcome->deferred.Reject(environment.error_of(*outcome->failure));
    } else {
      outcome->deferred.Resolve(outcome->result.IsEmpty() ? environment.env.Undefined()
                                                          : outcome->result.Value());
    }
  } catch (const Napi::Error&) {
    // The worker is being terminated: JavaScript can no longer run, and nobody waits for the promise.
  }
}

}  // namespace steptrain::binding
