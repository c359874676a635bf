// Every family of kernels registers its ops here. An op that none registers "has no kernel on cuda:0".
#pragma once

#include <string>
#include <vector>

#include "cuda/stream.h"

namespace steptrain::cuda {

class KernelTable {
 public:
  KernelTable();
  /// Throws where the op list has no such name.
  void set(const std::string& op, Kernel kernel);
  Kernel at(int op) const { return kernels_[static_cast<size_t>(op)]; }

 private:
  std::vector<Kernel> kernels_;
};

void register_gemm(KernelTable& table);
void register_norm(KernelTable& table);
void register_optimizer(KernelTable& table);
void register_memory(KernelTable& table);

const KernelTable& kernels();

}  // namespace steptrain::cuda
