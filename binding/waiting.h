// Work that waits for other processes, on a thread of its own, as a promise.
#pragma once

#include <napi.h>

#include <functional>
#include <utility>

#include "binding/environment.h"
#include "core/error.h"

namespace steptrain::binding {

class Waiting final : public Napi::AsyncWorker {
 public:
  using Result = std::function<Napi::Value(Napi::Env)>;

  static Napi::Value start(Napi::Env env, std::function<Result()> work) {
    auto* waiting = new Waiting(env, std::move(work));
    waiting->Queue();
    return waiting->deferred_.Promise();
  }

 private:
  Waiting(Napi::Env env, std::function<Result()> work)
      : Napi::AsyncWorker(env), deferred_(Napi::Promise::Deferred::New(env)), work_(std::move(work)) {}

  void Execute() override {
    try {
      result_ = work_();
    } catch (const Error& error) {
      failure_ = failure_of(error);
      SetError(error.what());
    }
  }
  void OnOK() override { deferred_.Resolve(result_(Env())); }
  void OnError(const Napi::Error&) override {
    deferred_.Reject(Env().GetInstanceData<Environment>()->error_of(failure_));
  }

  Napi::Promise::Deferred deferred_;
  std::function<Result()> work_;
  Result result_;
  Failure failure_;
};

}  // namespace steptrain::binding
