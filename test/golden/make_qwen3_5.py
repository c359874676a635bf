"""Gradients of tiny random models of Qwen3.5 by transformers' torch path: needs torch, transformers (5.24) and safetensors.

    python test/golden/make_qwen3_5.py

Writes variants/qwen3_5-*: the model, logits, loss and every gradient. Values are computed in float64 from float32 weights; where
transformers computes in float32 (norms, rotary tables, the delta rule), float64 stands in for it (`double` in place of `float`).
"""
import os
import torch
from safetensors.torch import save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

HERE = os.path.join(os.path.dirname(__file__), "variants")
COMMON = dict(vocab_size=96, initializer_range=0.2, attn_implementation="eager", bos_token_id=2, eos_token_id=1, pad_token_id=0,
              max_position_embeddings=96, intermediate_size=40)
MODELS = {
    # Groups of three value heads, whose width is that of no vector, and is another than that of keys.
    "qwen3_5-groups": Qwen3_5TextConfig(
        **COMMON, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=12,
        layer_types=["linear_attention", "full_attention", "linear_attention"], attention_bias=True),
    # Released sizes of heads, three taps, a tied head.
    "qwen3_5-wide-heads": Qwen3_5TextConfig(
        **COMMON, hidden_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1, head_dim=256,
        linear_num_key_heads=1, linear_num_value_heads=1, linear_key_head_dim=128, linear_value_head_dim=128,
        linear_conv_kernel_dim=3, layer_types=["linear_attention", "full_attention"], tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25}),
}
torch.Tensor.float = torch.Tensor.double
to = torch.Tensor.to


def wide(self, *args, **settings):
    return to(self, *[torch.float64 if each is torch.float32 else each for each in args], **settings)


for i, (name, config) in enumerate(MODELS.items()):
    torch.manual_seed(20261129 + i)
    model = Qwen3_5ForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    model = model.double().eval()
    ids = torch.randint(3, config.vocab_size, (1, 41))
    torch.Tensor.to = wide
    logits = model(ids).logits
    torch.Tensor.to = to
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    single = lambda x: x.detach().to(torch.float32).contiguous()
    tensors = {"ids": ids[0].int(), "logits": single(logits[0]), "loss": single(loss).reshape(1)}
    tensors |= {f"grad.{key}": single(value.grad) for key, value in model.named_parameters()}
    save_file(tensors, os.path.join(folder, "expected.safetensors"))
    os.remove(os.path.join(folder, "generation_config.json"))
    print(name, logits.dtype, float(loss))
