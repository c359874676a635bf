"""The other half of qlora-beside-peft.mjs.

    save MODEL DIRECTORY                 MODEL in NF4 with double quantisation, by transformers and bitsandbytes
    compare DIRECTORY ADAPTER SCORES     log-probabilities of tokens by PEFT on it, beside those in SCORES

Three bounds. With the values that bitsandbytes dequantises, multiplied in float32, 2e-3 as of any model in float32, without and with
the adapter. With its own CPU product, which rounds to bf16, and beside a base that steptrain has quantised, a tenth of what the adapter
changes at most: of the second-level codes bitsandbytes' CPU kernel chooses the further of two levels now and then, near ties.
"""
import json, sys
import bitsandbytes.functional as F
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def load(directory, **options):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **options).eval()


def apart(model, ids, wanted):
    worst = 0
    for row, logprobs in zip(ids, wanted):
        row = torch.tensor([row])
        with torch.no_grad():
            found = model(row).logits[0, :-1].float().log_softmax(-1)
        found = found.gather(1, row[0, 1:, None])[:, 0]
        worst = max(worst, (found - torch.tensor(logprobs)[-len(found):]).abs().max().item())
    return worst


command, *names = sys.argv[1:]
if command == "save":
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                             bnb_4bit_compute_dtype=torch.float32)
    load(names[0], quantization_config=nf4).save_pretrained(names[1])
    sys.exit()

base, adapter, file = names
scores = json.load(open(file))
packed = load(base)
exact = load(base)
for name, module in list(exact.named_modules()):
    state = getattr(getattr(module, "weight", None), "quant_state", None)
    if state is None:
        continue
    plain = torch.nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
    plain.weight.data = F.dequantize_4bit(module.weight.data, state).float()
    if module.bias is not None:
        plain.bias.data = module.bias.data.float()
    parent, _, child = name.rpartition(".")
    setattr(exact.get_submodule(parent), child, plain)
exact.config.quantization_config = None
change = max(abs(a - b) for rows in zip(scores["kept"], scores["base"]) for a, b in zip(*rows))
ids = scores["ids"]
results = [("base, dequantised by bitsandbytes", apart(exact, ids, scores["base"]), 2e-3)]
results.append(("adapter in PEFT on it", apart(PeftModel.from_pretrained(exact, adapter).eval(), ids, scores["kept"]), 2e-3))
four_bits = PeftModel.from_pretrained(packed, adapter).eval()
results.append(("adapter in PEFT on the 4-bit model", apart(four_bits, ids, scores["kept"]), change / 10))
results.append(("the same beside the base of model.quantize nf4", apart(four_bits, ids, scores["made"]), change / 10))
print(f"the adapter changes log-probabilities by up to {change:.3g}")
for what, found, bound in results:
    print(f"{what}: at most {found:.2e} apart, bound {bound:.2e}")
sys.exit(any(not found < bound for _, found, bound in results))
