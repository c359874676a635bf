#include "cpu/runtime/families.h"

#if defined(STEPTRAIN_BASE)
namespace steptrain::cpu::STEPTRAIN_BASE {
const KernelTable& kernels();
}
#endif

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_collectives(KernelTable& table);
void register_causal_conv1d(KernelTable& table);
void register_gated_delta_rule(KernelTable& table);
void register_delta_chunks(KernelTable& table);
void register_objective_divergence(KernelTable& table);

const KernelTable& kernels() {
  // Never freed: a process may exit while a queue's thread still runs its ops.
  static const KernelTable& table = *new KernelTable([] {
#if defined(STEPTRAIN_BASE)
    KernelTable t = cpu::STEPTRAIN_BASE::kernels();
#else
    KernelTable t;
    register_rmsnorm(t);
    register_layernorm(t);
    register_rope(t);
    register_causal_conv1d(t);
    register_gated_delta_rule(t);
    register_mlp(t);
    register_embedding(t);
    register_experts(t);
    register_advantage(t);
    register_objective(t);
    register_objective_policy(t);
    register_objective_divergence(t);
    register_objective_preference(t);
    register_optimizer(t);
    register_sampling(t);
    register_memory(t);
    register_memory_rows(t);
    register_collectives(t);
#endif
    register_pack_weight(t);
    register_pack_quantized(t);
    register_linear(t);
    register_linear_qkv(t);
    register_linear_swiglu(t);
    register_linear_swiglu_stack(t);
    register_linear_dx(t);
    register_linear_dw(t);
    register_linear_experts(t);
    register_attention(t);
    register_attention_backward(t);
    register_attention_paged(t);
    register_disentangled_attention(t);
    register_disentangled_attention_backward(t);
    register_cache(t);
#if defined(__AVX512BF16__)
    register_delta_chunks(t);
#endif
    register_head_logprobs(t);
    register_head_logprobs_backward(t);
    register_head_select(t);
    return t;
  }());
  return table;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
