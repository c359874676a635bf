// The open communicators of this process, by number: what an op's scalar `communicator` means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "carriers/carrier.h"

namespace steptrain {

/// Takes the carrier over. Any thread.
int64_t add_communicator(const steptrain_carrier& carrier);

/// Throws Error E_HANDLE for one that is not open.
const steptrain_carrier& communicator(int64_t id);

/// Throws Error E_CLUSTER, which names `op`, where `status` is not 0.
void check_carried(const steptrain_carrier& carrier, int status, const char* op);

/// Lets what waits in it fail. Does nothing where it is not open.
void cancel_communicator(int64_t id);

/// Waits for the other processes.
void close_communicator(int64_t id);

/// Loads a plugin and opens its carrier, which may wait for the other processes. Throws Error E_CLUSTER.
steptrain_carrier open_plugin(const std::string& path);

}  // namespace steptrain
