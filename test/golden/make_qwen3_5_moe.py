"""A tiny random Qwen3.5 with experts by transformers' torch path: needs torch, transformers (5.24), peft (0.21) and safetensors.

    python test/golden/make_qwen3_5_moe.py

Writes variants/qwen3_5-moe: the model, logits, loss and every gradient, two greedy continuations; adapter/, what PEFT writes of an
adapter on both kinds of layers, all experts, the router and the expert that reads every token, and its logits and gradients. Values
are computed in float64 from float32 weights; where transformers computes in float32, float64 stands in for it.
"""
import json
import os
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

FOLDER = os.path.join(os.path.dirname(__file__), "variants", "qwen3_5-moe")
CONFIG = Qwen3_5MoeTextConfig(
    vocab_size=96, initializer_range=0.2, attn_implementation="eager", bos_token_id=2, eos_token_id=1, pad_token_id=0,
    max_position_embeddings=96, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    moe_intermediate_size=10, shared_expert_intermediate_size=14, num_experts=5, num_experts_per_tok=2)


def apart(name, value):
    """The joint weight of experts as weights of each."""
    if name.endswith("experts.gate_up_proj"):
        gate, up = value.chunk(2, dim=1)
        return apart(name.replace("gate_up_proj", "gate_proj"), gate) | apart(name.replace("gate_up_proj", "up_proj"), up)
    before, found, projection = name.partition("experts.")
    if not found:
        return {name: value}
    return {f"{before}experts.{i}.{projection}.weight": each.contiguous() for i, each in enumerate(value)}


to, single, softmax = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax
wider = lambda dtype: torch.float64 if dtype is torch.float32 else dtype


class Wide:
    """float64 wherever transformers asks for float32."""

    def __enter__(self):
        torch.Tensor.float = torch.Tensor.double
        torch.Tensor.to = lambda self, *args, **settings: to(self, *map(wider, args), **settings)
        torch.nn.functional.softmax = lambda x, dtype=None, **settings: softmax(x, dtype=wider(dtype), **settings)

    def __exit__(self, *_):
        torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax = to, single, softmax


def step(model, ids):
    with Wide():
        logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    return logits, loss


stored = lambda x: single(x.detach()).contiguous().clone()
torch.manual_seed(20261130)
model = Qwen3_5MoeForCausalLM(CONFIG).to(torch.float32)
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.3)
model.save_pretrained(FOLDER)
os.remove(os.path.join(FOLDER, "generation_config.json"))
# Of grouped products torch has none in float64.
model.config._experts_implementation = "eager"
model = model.double().eval()
ids = torch.randint(3, CONFIG.vocab_size, (1, 41))
logits, loss = step(model, ids)
print("loss", logits.dtype, float(loss.detach()))
tensors = {"ids": ids[0].int(), "logits": stored(logits[0]), "loss": stored(loss).reshape(1)}
for key, value in model.named_parameters():
    tensors |= {f"grad.{each}": stored(grad) for each, grad in apart(key, value.grad).items()}
with torch.no_grad():
    for i, length in enumerate([17, 3]):
        written = ids[:, :length]
        for _ in range(20):
            with Wide():
                written = torch.cat([written, model(written).logits[:, -1].argmax(-1, keepdim=True)], 1)
        tensors[f"greedy.{i}"] = written[0].int()
save_file(tensors, os.path.join(FOLDER, "expected.safetensors"))

base = Qwen3_5MoeForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
base.config._experts_implementation = "eager"
tuned = get_peft_model(base, LoraConfig(
    task_type="CAUSAL_LM", r=3, lora_alpha=6,
    target_modules=["q_proj", "v_proj", "in_proj_qkv", "in_proj_a", "out_proj", "gate_proj", "down_proj", "shared_expert_gate"],
    target_parameters=["experts.gate_up_proj", "experts.down_proj", "gate.weight"]))
with torch.no_grad():
    for name, parameter in tuned.named_parameters():
        if "lora_" in name:
            parameter.copy_(torch.randn_like(parameter) * 0.2)
adapter = os.path.join(FOLDER, "adapter")
tuned.save_pretrained(adapter)
os.remove(os.path.join(adapter, "README.md"))
path = os.path.join(adapter, "adapter_config.json")
config = json.load(open(path)) | {"base_model_name_or_path": "qwen3_5-moe"}
json.dump(config | {"target_modules": sorted(config["target_modules"])}, open(path, "w"), indent=2)
tuned = tuned.double().eval()
logits, loss = step(tuned, ids)
print("with the adapter", logits.dtype, float(loss.detach()))
tensors = {"logits": stored(logits[0]), "loss": stored(loss).reshape(1)}
tensors |= {f"grad.{name.replace('.default', '')}": stored(value.grad) for name, value in tuned.named_parameters() if value.requires_grad}
save_file(tensors, os.path.join(FOLDER, "adapter-expected.safetensors"))
