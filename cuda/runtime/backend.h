#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"

namespace steptrain::cuda {

/// Models of the GPUs that this process sees; empty where there is no driver or none can be used.
std::vector<std::string> devices();

/// Why devices() lists none; empty where it does not.
std::string obstacle();

/// Opens GPU `index`. Throws Error(E_UNSUPPORTED) where there is none, no driver, or one too old.
std::unique_ptr<Backend> make_backend(int index);

}  // namespace steptrain::cuda
