// Every family of kernels registers its ops here, once per instruction set: each file is compiled for each of
// them with STEPTRAIN_ISA naming the namespace.
#pragma once

#include <string>
#include <vector>

#include "cpu/runtime/stream.h"

namespace steptrain::cpu {

class KernelTable {
 public:
  KernelTable();
  /// Throws where the op list has no such name.
  void set(const std::string& op, Kernel kernel);
  Kernel at(int op) const { return kernels_[static_cast<size_t>(op)]; }

  /// Bytes of a packed [n, k] weight in this table's layout.
  int64_t (*packed_bytes)(DType dtype, int64_t n, int64_t k) = nullptr;

 private:
  std::vector<Kernel> kernels_;
};

}  // namespace steptrain::cpu

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_gemm(KernelTable& table);
void register_attention(KernelTable& table);
void register_norm(KernelTable& table);
void register_rope(KernelTable& table);
void register_mlp(KernelTable& table);
void register_embedding(KernelTable& table);
void register_head(KernelTable& table);
void register_advantage(KernelTable& table);
void register_objective(KernelTable& table);
void register_optimizer(KernelTable& table);
void register_sampling(KernelTable& table);
void register_memory(KernelTable& table);

const KernelTable& kernels();

}  // namespace steptrain::cpu::STEPTRAIN_ISA
