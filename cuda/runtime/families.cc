#include "cuda/runtime/families.h"

#include "core/error.h"
#include "core/ops.h"

namespace steptrain::cuda {

void register_collectives(KernelTable& table);
void register_causal_conv1d(KernelTable& table);
void register_gated_delta_rule(KernelTable& table);
void register_objective_divergence(KernelTable& table);

KernelTable::KernelTable() : kernels_(ops().size(), nullptr) {}

void KernelTable::set(const std::string& op, Kernel kernel) {
  const int index = op_index(op);
  if (index < 0) throw Error("E_RANGE", "a kernel is registered for an op that is not in the list: " + op);
  kernels_[static_cast<size_t>(index)] = kernel;
}

const KernelTable& kernels() {
  // Never freed: a process may exit while a queue's thread still runs its ops.
  static const KernelTable& table = *new KernelTable([] {
    KernelTable t;
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
    register_rmsnorm(t);
    register_layernorm(t);
    register_rope(t);
    register_causal_conv1d(t);
    register_gated_delta_rule(t);
    register_mlp(t);
    register_embedding(t);
    register_experts(t);
    register_head_logprobs(t);
    register_head_logprobs_backward(t);
    register_head_select(t);
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
    return t;
  }());
  return table;
}

}  // namespace steptrain::cuda
