// The op list: every op's signature, once. Both devices implement it; TypeScript reads it from the addon.
#pragma once

#include <string>
#include <vector>

#include "core/signature.h"

namespace steptrain {

const std::vector<Signature>& ops();

/// Index into ops(), or -1.
int op_index(const std::string& name);

}  // namespace steptrain
