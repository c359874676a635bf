"""Tiny random models of gemma3_text, smollm3 and qwen3_moe with their logits, loss and gradients: needs torch, transformers and peft.

    python test/golden/make_variants.py            all, or those that are named

Values are computed in float64 from float32 weights. transformers itself makes the rotary tables in float32, and Gemma's norms: those are
computed in float64 here (`double` in place of `float`).
"""
import json, os, sys
import torch
from torch.func import functional_call
from safetensors.torch import save_file
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.qwen3_moe import modeling_qwen3_moe
from transformers.models.smollm3 import modeling_smollm3

HERE = os.path.join(os.path.dirname(__file__), "variants")


def norm(self, x):
    return self._norm(x) * (1.0 + self.weight)


def plain_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


modeling_gemma3.Gemma3RMSNorm.forward = norm
modeling_smollm3.SmolLM3RMSNorm.forward = plain_norm
modeling_qwen3_moe.Qwen3MoeRMSNorm.forward = plain_norm


def router(self, x):
    logits = torch.nn.functional.linear(x.reshape(-1, self.hidden_dim), self.weight)
    weights, experts = logits.softmax(-1).topk(self.top_k, dim=-1)
    return logits, weights / weights.sum(-1, keepdim=True) if self.norm_topk_prob else weights, experts


modeling_qwen3_moe.Qwen3MoeTopKRouter.forward = router


def apart(name, value):
    """The joint weight of experts under the names of files."""
    if name.endswith("experts.gate_up_proj"):
        gate, up = value.chunk(2, dim=1)
        return apart(name.replace("gate_up_proj", "gate_proj"), gate) | apart(name.replace("gate_up_proj", "up_proj"), up)
    before, found, projection = name.partition("experts.")
    if not found:
        return {name: value}
    return {f"{before}experts.{i}.{projection}.weight": each.contiguous() for i, each in enumerate(value)}


def lora(folder, model, ids):
    """An adapter on attention, router and every expert as PEFT wrote it while experts were modules, and its gradients."""
    r, alpha = 3, 6.0
    pairs, targets = {}, ["q_proj", "gate", "gate_proj", "up_proj", "down_proj"]
    weights = {}
    for name, value in model.named_parameters():
        weights |= apart(name, value.detach())
    for name, value in weights.items():
        module = name.removesuffix(".weight")
        if module.split(".")[-1] in targets:
            pairs[module] = [torch.randn(r, value.shape[1]) * 0.3, torch.randn(value.shape[0], r) * 0.3]
    stored = {f"base_model.model.{module}.lora_{side}.weight": value.contiguous()
              for module, pair in pairs.items() for side, value in zip("AB", pair)}
    path = os.path.join(folder, "adapter")
    os.makedirs(path, exist_ok=True)
    save_file(stored, os.path.join(path, "adapter_model.safetensors"))
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": r, "lora_alpha": alpha, "target_modules": targets, "bias": "none",
              "base_model_name_or_path": "qwen3-moe"}
    json.dump(config, open(os.path.join(path, "adapter_config.json"), "w"), indent=1)
    leaves = {module: [value.double().requires_grad_() for value in pair] for module, pair in pairs.items()}

    def changed(name, value):
        modules = {key.removesuffix(".weight"): each for key, each in apart(name, value.detach()).items()}
        parts = {module: each + alpha / r * leaves[module][1] @ leaves[module][0] if module in leaves else each
                 for module, each in modules.items()}
        if "experts." not in name:
            return next(iter(parts.values()))
        stacked = lambda kind: torch.stack([each for module, each in parts.items() if module.endswith(kind)])
        if name.endswith("gate_up_proj"):
            return torch.cat([stacked("gate_proj"), stacked("up_proj")], 1)
        return stacked("down_proj")

    logits = functional_call(model, {name: changed(name, value) for name, value in model.named_parameters()}, (ids,)).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    tensors = {"logits": logits[0].detach().float(), "loss": loss.detach().float().reshape(1)}
    tensors |= {f"grad.base_model.model.{module}.lora_{side}.weight": value.grad.float().contiguous()
                for module, pair in leaves.items() for side, value in zip("AB", pair)}
    save_file(tensors, os.path.join(folder, "adapter-expected.safetensors"))
    # As PEFT has it since experts are one parameter.
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    wrapped = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), path)
    with torch.no_grad():
        print("peft differs by", float((wrapped(ids).logits[0] - logits[0]).abs().max()))
    joint = os.path.join(folder, "adapter-joint")
    wrapped.save_pretrained(joint)
    os.remove(os.path.join(joint, "README.md"))

def balance(folder, model, ids):
    """The loss that balances experts, and its own gradients of the routers and of some weights before them."""
    single, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
    try:
        loss = model(ids, output_router_logits=True).aux_loss
    finally:
        torch.Tensor.float = single
    model.zero_grad()
    loss.backward()
    tensors = {"aux_loss": loss.detach().float().reshape(1)}
    for key, value in model.named_parameters():
        for each, grad in apart(key, torch.zeros_like(value) if value.grad is None else value.grad).items():
            if each.endswith(("mlp.gate.weight", "1.self_attn.q_proj.weight", "1.mlp.experts.0.down_proj.weight", "0.mlp.down_proj.weight")):
                tensors[f"grad.{each}"] = grad.float().contiguous()
    save_file(tensors, os.path.join(folder, "balance.safetensors"))
    print("balance", float(loss), len(tensors) - 1)


COMMON = dict(vocab_size=96, initializer_range=0.2, attn_implementation="eager", bos_token_id=2, pad_token_id=0)
MODELS = {
    # Heads as wide as the released models', both kinds of layers, positions of one scaled.
    "gemma3-windows": (Gemma3ForCausalLM, Gemma3TextConfig(
        **COMMON, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=256,
        query_pre_attn_scalar=256, sliding_window=5, sliding_window_pattern=3, max_position_embeddings=64, eos_token_id=[1, 7],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    "gemma3-untied": (Gemma3ForCausalLM, Gemma3TextConfig(
        **COMMON, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        query_pre_attn_scalar=8, layer_types=["full_attention", "sliding_attention"], sliding_window=3, max_position_embeddings=64,
        attention_bias=True, tie_word_embeddings=False, eos_token_id=1)),
    "smollm3-no-rope": (SmolLM3ForCausalLM, SmolLM3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, eos_token_id=1)),
    "smollm3-windows": (SmolLM3ForCausalLM, SmolLM3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
        no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=4, attention_bias=True, mlp_bias=True,
        max_position_embeddings=64, eos_token_id=1, tie_word_embeddings=False)),
    "qwen3-moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        moe_intermediate_size=16, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True, max_position_embeddings=64, eos_token_id=1)),
    # Dense layers by both keys, probabilities as they are, a window, and more experts for a token.
    "qwen3-moe-dense-layers": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **COMMON, hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
        moe_intermediate_size=20, num_experts=5, num_experts_per_tok=3, decoder_sparse_step=2, mlp_only_layers=[3],
        use_sliding_window=True, sliding_window=4, attention_bias=True, max_position_embeddings=64, eos_token_id=1,
        tie_word_embeddings=True)),
}
for i, (name, (kind, config)) in enumerate(MODELS.items()):
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    torch.manual_seed(20261126 + i)
    model = kind(config).float()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            parameter.copy_(parameter.float())
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    # Of grouped products torch has none in float64.
    model.config._experts_implementation = "eager"
    model = model.double().eval()
    ids = torch.randint(3, config.vocab_size, (1, 23))
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    tensors = {"ids": ids[0].int(), "logits": logits[0].detach().float(), "loss": loss.detach().float().reshape(1)}
    for key, value in model.named_parameters():
        tensors |= {f"grad.{each}": grad.float() for each, grad in apart(key, value.grad).items()}
    save_file(tensors, os.path.join(folder, "expected.safetensors"))
    os.remove(os.path.join(folder, "generation_config.json"))
    print(name, float(loss))
    if name.startswith("qwen3-moe"):
        balance(folder, model, ids)
    if name == "qwen3-moe":
        model.zero_grad()
        lora(folder, model, ids)
