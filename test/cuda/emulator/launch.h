// A kernel between its launch and its end.
#pragma once

#include <functional>
#include <memory>

#include "cuda_runtime_api.h"

namespace emulator {

/// Fibers of a block, and what they share.
struct Block;

struct Launch {
  cudaLaunchConfig_t config;
  std::function<void()> kernel;
  bool early;  // may start before the kernel in front of it has ended
  std::shared_ptr<Block> started;
};

/// Runs a block of a kernel up to its waits for the kernel in front of it. Called with the emulator's lock held.
void start_kernel(Launch& launch);
/// Runs the rest of it.
void run_kernel(Launch& launch);
/// Whether that is memory of a GPU.
bool in_memory(const void* at);

}  // namespace emulator
