"""Reference values for quantised weights: needs torch, transformers, bitsandbytes (0.46 or newer, which has CPU kernels), compressed-tensors.

    python test/golden/make_quantized.py

quantized/weights.safetensors: small weights as bitsandbytes and compressed-tensors save them, those of the former with their source (`X.source`), and their
values by that library in float32 (`X.values`).
quantized/bitsandbytes: the tiny `llama3` as transformers saves it in NF4 with double quantisation, and in quantized/logits.safetensors
token ids and the logits that transformers computes of the values that bitsandbytes dequantises, in float32.
"""
import os
import bitsandbytes.functional as F
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "quantized")
os.makedirs(FOLDER, exist_ok=True)
torch.manual_seed(20261127)
out = {}

def source(rows, columns):
    w = torch.randn(rows, columns) * 0.04 * torch.rand(rows, 1)
    w[3] = 0
    w[5, 7] = 1.5
    return w

for name, nested, rows, columns in (("double", True, 80, 256), ("plain", False, 37, 192)):
    w = source(rows, columns)
    codes, state = F.quantize_4bit(w, quant_type="nf4", compress_statistics=nested)
    out[f"{name}.source"] = w
    out[f"{name}.weight"] = codes
    for key, value in state.as_dict(packed=True).items():
        out[f"{name}.weight.{key}"] = value.contiguous()
    out[f"{name}.values"] = F.dequantize_4bit(codes, state).float()

def scaled(name, w, scale, args):
    out[f"{name}.weight"] = quantize(w, scale, None, args, dtype=args.pytorch_dtype())
    out[f"{name}.weight_scale"] = scale
    out[f"{name}.values"] = dequantize(out[f"{name}.weight"], scale, None, args, dtype=torch.float32)

w = source(37, 132)
by_row = w.abs().amax(1, keepdim=True).clamp(min=1e-5)
scaled("int8", w, by_row / 127, QuantizationArgs(num_bits=8, type="int", strategy="channel"))
scaled("fp8", w, by_row / 448, QuantizationArgs(num_bits=8, type="float", strategy="channel"))
scaled("whole", w, w.abs().max().reshape(1) / 448, QuantizationArgs(num_bits=8, type="float", strategy="tensor"))
w = source(136, 132)
padded = torch.nn.functional.pad(w, (0, 256 - 132, 0, 256 - 136))
square = padded.reshape(2, 128, 2, 128).abs().amax((1, 3)) / 448
codes = (w / square.repeat_interleave(128, 0)[:136].repeat_interleave(128, 1)[:, :132]).to(torch.float8_e4m3fn)
out["square.weight"] = codes
out["square.weight_scale_inv"] = square
# By squares transformers' fine-grained fp8 does the same: codes in float32, times the scale of their square.
out["square.values"] = codes.float() * square.repeat_interleave(128, 0)[:136].repeat_interleave(128, 1)[:, :132]
save_file(out, os.path.join(FOLDER, "weights.safetensors"), metadata={"format": "pt"})

config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                            bnb_4bit_compute_dtype=torch.float32)
model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "llama3"), quantization_config=config, dtype=torch.float32).eval()
model.save_pretrained(os.path.join(FOLDER, "bitsandbytes"))
# bitsandbytes' own product on the CPU rounds to bf16; the values that it dequantises are multiplied here in float32.
exact = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "llama3"), dtype=torch.float32).eval()
for name, module in model.named_modules():
    state = getattr(getattr(module, "weight", None), "quant_state", None)
    if state is not None:
        exact.get_submodule(name).weight.data = F.dequantize_4bit(module.weight.data, state).float()
ids = torch.randint(0, 320, (1, 24))
with torch.no_grad():
    logits = exact(ids).logits[0]
save_file({"ids": ids[0].to(torch.int32), "logits": logits.contiguous()}, os.path.join(FOLDER, "logits.safetensors"))
