#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"

namespace steptrain::cpu {

/// Instruction sets that this processor runs and this build holds, best first.
std::vector<std::string> available_isas();

/// Those that it would run but this build leaves out, best first.
std::vector<std::string> unbuilt_isas();

/// threads 0: one per core that the process may use. isa "": the best. Throws Error(E_UNSUPPORTED).
std::unique_ptr<Backend> make_backend(int threads, const std::string& isa);

}  // namespace steptrain::cpu
