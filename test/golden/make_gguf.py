"""Reference values for GGUF files.

    python test/golden/make_gguf.py                the blocks alone: needs numpy and gguf
    python test/golden/make_gguf.py FOLDER         the model too: needs torch, transformers, and smollm2-135m-instruct.Q4_1.gguf there

gguf-blocks.json: blocks of every quantised type that is read, random but finite, with their values by the `gguf` package.
gguf-quantized.json: values and their blocks.
gguf-smollm2.json: log-probabilities by transformers, which dequantises to float32 and computes in it.
"""
import base64, json, os, sys
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, quants

rng = np.random.default_rng(20261126)
# Where in a block the halves lie: scales and least values.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
          "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
out = {}
for name, places in HALVES.items():
    values, size = GGML_QUANT_SIZES[T[name]]
    blocks = rng.integers(0, 256, (3, size), dtype=np.uint8)
    for at in places:
        scale = rng.normal(0, 0.02, 3).astype(np.float16)
        scale[2] = np.float16(3e-6)  # subnormal
        blocks[:, at:at + 2] = scale.view(np.uint8).reshape(3, 2)
    wanted = quants.dequantize(blocks.reshape(1, -1), T[name]).astype(np.float32)
    out[name] = {"bytes": base64.b64encode(blocks.tobytes()).decode(), "values": base64.b64encode(wanted.tobytes()).decode()}
HERE = os.path.dirname(__file__)
json.dump(out, open(os.path.join(HERE, "gguf-blocks.json"), "w"), indent=1)

values = np.concatenate([rng.normal(0, 0.05, 256), np.zeros(32), rng.uniform(-3, 3, 32), np.arange(-16, 16) * 0.5]).astype(np.float32)
quantized = {"values": base64.b64encode(values.tobytes()).decode()}
for name in ("Q8_0", "Q4_0"):
    quantized[name] = base64.b64encode(quants.quantize(values.reshape(1, -1), T[name]).tobytes()).decode()
json.dump(quantized, open(os.path.join(HERE, "gguf-quantized.json"), "w"), indent=1)

if len(sys.argv) > 1:
    import torch
    from transformers import AutoModelForCausalLM

    file = os.path.join(HERE, "gguf-smollm2.json")
    texts = json.load(open(file))
    model = AutoModelForCausalLM.from_pretrained(
        sys.argv[1], gguf_file="smollm2-135m-instruct.Q4_1.gguf", dtype=torch.float32).eval()
    for text in texts:
        ids = torch.tensor([text["ids"]])
        with torch.no_grad():
            logprobs = model(ids).logits[0].log_softmax(-1)
        picked = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0]
        text["logprobs"] = [round(value, 6) for value in picked.tolist()]
    json.dump(texts, open(file, "w"))
