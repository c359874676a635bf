"""Small models with rotary embeddings in every spelling: `make FOLDER` writes them with transformers 5, `read FOLDER` gives the
log-probabilities that the transformers at hand reads from what steptrain wrote beside them, as JSON."""

import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

IDS = [3, 17, 5, 40, 2, 9, 33, 21] * 24
SIZES = dict(
    vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=256, bos_token_id=0, eos_token_id=1, pad_token_id=0,
    tie_word_embeddings=True,
)
THETA = 1000000.0
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
SCALINGS = {
    "default": {},
    "linear": dict(rope_type="linear", factor=2.0),
    "dynamic": dict(rope_type="dynamic", factor=2.0),
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn with attention_factor": {**YARN, "attention_factor": 1.4},
    "yarn with betas": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn untruncated": {**YARN, "truncate": False},
}
TYPES = ["llama", "qwen2", "qwen3", "mistral", "smollm3"]


def logprobs(directory):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor([IDS])
    with torch.no_grad():
        found = model(ids).logits.log_softmax(-1)
    return found[0, :-1].gather(-1, ids[0, 1:, None])[:, 0].tolist()


def make(folder):
    """Both spellings of each: `rope_parameters` as transformers 5 saves it, `rope_theta` with `rope_scaling` as 4 does."""
    cases = []
    for kind in TYPES:
        for name, scaling in SCALINGS.items():
            torch.manual_seed(len(cases))
            parameters = {"rope_type": "default", **scaling, "rope_theta": THETA}
            config = transformers.AutoConfig.for_model(kind, **SIZES, rope_parameters=parameters)
            model = AutoModelForCausalLM.from_config(config).float()
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.ndim == 2:
                        weight.mul_(6)
            for spelling in ("rope_parameters", "rope_scaling"):
                directory = folder / str(len(cases))
                model.save_pretrained(directory)
                if spelling == "rope_scaling":
                    path = directory / "config.json"
                    written = json.loads(path.read_text())
                    written.pop("rope_parameters")
                    written.update(rope_theta=THETA, rope_scaling=scaling or None, transformers_version="4.57.6")
                    path.write_text(json.dumps(written, indent=2))
                title = f"{kind}, {name}, as {spelling}"
                cases.append({"title": title, "directory": str(directory), "logprobs": logprobs(directory)})
    return {"version": transformers.__version__, "ids": IDS, "cases": cases}


def read(folder):
    directories = sorted(folder.glob("*/ours"), key=lambda path: int(path.parent.name))
    return {"version": transformers.__version__, "logprobs": {path.parent.name: logprobs(path) for path in directories}}


transformers.logging.set_verbosity_error()
action, folder = sys.argv[1], Path(sys.argv[2])
print(json.dumps(make(folder) if action == "make" else read(folder)))
