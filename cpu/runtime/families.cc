#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable t;
    register_gemm(t);
    register_attention(t);
    register_norm(t);
    register_rope(t);
    register_mlp(t);
    register_embedding(t);
    register_head(t);
    register_advantage(t);
    register_objective(t);
    register_optimizer(t);
    register_sampling(t);
    register_memory(t);
    return t;
  }();
  return table;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
