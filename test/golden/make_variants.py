"""Tiny random models of gemma3_text and smollm3 with their logits, loss and gradients: needs torch and transformers.

    python test/golden/make_variants.py

Values are computed in float64 from float32 weights. transformers itself makes the rotary tables in float32, and Gemma's norms: those are
computed in float64 here (`double` in place of `float`).
"""
import json, os
import torch
from safetensors.torch import save_file
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, SmolLM3Config, SmolLM3ForCausalLM
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.smollm3 import modeling_smollm3

HERE = os.path.join(os.path.dirname(__file__), "variants")


def norm(self, x):
    return self._norm(x) * (1.0 + self.weight)


def plain_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


modeling_gemma3.Gemma3RMSNorm.forward = norm
modeling_smollm3.SmolLM3RMSNorm.forward = plain_norm

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
}
for i, (name, (kind, config)) in enumerate(MODELS.items()):
    torch.manual_seed(20261126 + i)
    model = kind(config).float()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            parameter.copy_(parameter.float())
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    model = model.double().eval()
    ids = torch.randint(3, config.vocab_size, (1, 23))
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    tensors = {"ids": ids[0].int(), "logits": logits[0].detach().float(), "loss": loss.detach().float().reshape(1)}
    tensors |= {f"grad.{key}": value.grad.float() for key, value in model.named_parameters()}
    save_file(tensors, os.path.join(folder, "expected.safetensors"))
    os.remove(os.path.join(folder, "generation_config.json"))
    print(name, float(loss))
