// Opens and closes carriers of bytes among processes, off the event loop.
#pragma once

#include <napi.h>

namespace steptrain::binding {

/// openPlugin(path) -> Promise<{ communicator, rank, size }>
Napi::Value open_plugin_carrier(const Napi::CallbackInfo& info);
/// openShared(path, rank, size) -> Promise<{ communicator, rank, size }>
Napi::Value open_shared_carrier(const Napi::CallbackInfo& info);
/// ncclId(library) -> Promise<ArrayBuffer>
Napi::Value nccl_unique_id(const Napi::CallbackInfo& info);
/// openNccl(library, id, rank, size, gpu) -> Promise<{ communicator, rank, size }>; gpu below 0: none
Napi::Value open_nccl_carrier(const Napi::CallbackInfo& info);
/// cancelCarrier(communicator)
Napi::Value cancel_carrier(const Napi::CallbackInfo& info);
/// closeCarrier(communicator) -> Promise<void>
Napi::Value close_carrier(const Napi::CallbackInfo& info);

}  // namespace steptrain::binding
