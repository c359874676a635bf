// Processes of one machine that pass bytes through memory which they share: no socket, no copy by the kernel.
#pragma once

#include <string>

#include "carriers/carrier.h"

namespace steptrain {

/// `path`: a file in memory (/dev/shm) that rank 0 makes and all others open; it may be removed once all have. Throws Error
/// E_CLUSTER where there is none, or no room.
steptrain_carrier open_shared(const std::string& path, int rank, int size);

}  // namespace steptrain
