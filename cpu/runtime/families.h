// Every file of kernels registers its ops here, once per instruction set: it is compiled for each of them,
// with STEPTRAIN_ISA as the name of the namespace. A set whose instructions only products profit from has files of its own
// in gemm/, attention/ and head/; everything else it takes from the set that STEPTRAIN_BASE names.
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

  /// Bytes of a packed weight in this table's layout.
  int64_t (*packed_bytes)(const TensorView& weight) = nullptr;

 private:
  std::vector<Kernel> kernels_;
};

}  // namespace steptrain::cpu

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_pack_weight(KernelTable& table);
void register_pack_quantized(KernelTable& table);
void register_linear(KernelTable& table);
void register_linear_qkv(KernelTable& table);
void register_linear_swiglu(KernelTable& table);
void register_linear_swiglu_stack(KernelTable& table);
void register_linear_dx(KernelTable& table);
void register_linear_dw(KernelTable& table);
void register_linear_experts(KernelTable& table);
void register_attention(KernelTable& table);
void register_attention_backward(KernelTable& table);
void register_attention_paged(KernelTable& table);
void register_disentangled_attention(KernelTable& table);
void register_disentangled_attention_backward(KernelTable& table);
void register_cache(KernelTable& table);
void register_rmsnorm(KernelTable& table);
void register_layernorm(KernelTable& table);
void register_rope(KernelTable& table);
void register_mlp(KernelTable& table);
void register_embedding(KernelTable& table);
void register_experts(KernelTable& table);
void register_head_logprobs(KernelTable& table);
void register_head_logprobs_backward(KernelTable& table);
void register_head_select(KernelTable& table);
void register_advantage(KernelTable& table);
void register_objective(KernelTable& table);
void register_objective_policy(KernelTable& table);
void register_objective_preference(KernelTable& table);
void register_optimizer(KernelTable& table);
void register_sampling(KernelTable& table);
void register_memory(KernelTable& table);
void register_memory_rows(KernelTable& table);

const KernelTable& kernels();

}  // namespace steptrain::cpu::STEPTRAIN_ISA
