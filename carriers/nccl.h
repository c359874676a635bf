// NCCL, found at run time: the addon is neither compiled against it nor linked to it.
#pragma once

#include <array>
#include <string>

#include "carriers/carrier.h"

namespace steptrain {

/// What rank 0 makes and tells the others.
using NcclId = std::array<char, 128>;

/// `library`: its path, or "" for libnccl.so.2. Throws Error E_CLUSTER where it does not load or is too old.
NcclId nccl_id(const std::string& library);

/// Waits for the other processes. On a GPU, the current device of the calling thread is that of this rank.
steptrain_carrier open_nccl(const std::string& library, const NcclId& id, int rank, int size);

}  // namespace steptrain
