#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"

namespace steptrain::cuda {

/// The names of the GPUs that are visible to this process; empty without a driver or a usable GPU.
std::vector<std::string> devices();

/// Why devices() lists none; empty where it lists some.
std::string obstacle();

/// Opens GPU `index`. Throws Error(E_UNSUPPORTED) where there is none, no driver, or one too old.
std::unique_ptr<Backend> make_backend(int index);

/// Lets what the calling thread asks CUDA for mean GPU `index`.
void make_current(int index);

}  // namespace steptrain::cuda
