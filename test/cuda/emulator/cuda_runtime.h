#pragma once

#include <math.h>

#include <functional>

#include "cuda_runtime_api.h"
#include "emulator.h"

template <typename... Params, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Given&&... given) {
  // Copies the arguments, as a launch does.
  return emulator::launch(*config, std::bind(kernel, static_cast<Params>(given)...));
}
