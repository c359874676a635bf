#!/usr/bin/env bash
# mlx-lm 0.32.2 reads the base of rotary positions of a Llama from `rope_theta` at the top of config.json alone.
# transformers 5 writes it into `rope_parameters`, and nothing at the top.
#
# Expected: the base that the file names, or a refusal. Seen 2026-12-01: 10000 without a word, so the model says
# something else than in transformers, also after `mlx_lm convert`.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 transformers==5.24.0
cat >"$folder/case.py" <<'PY'
import json, pathlib, sys
import mlx.core as mx
import mlx_lm, transformers
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import load_model
from transformers import LlamaConfig

root = pathlib.Path(sys.argv[1])
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
)
new = root / "new"
config.save_pretrained(new)
written = json.loads((new / "config.json").read_text())
args = ModelArgs.from_dict(written)
mx.random.seed(1)
model = Model(args)
model.update(tree_unflatten([(k, mx.random.normal(v.shape)) for k, v in tree_flatten(model.parameters())]))
weights = dict(tree_flatten(model.parameters()))

def logits(folder, **more):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**written, **more}))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    return load_model(folder)[0](mx.arange(40)[None])

differ = lambda a, b: float(mx.abs(a - b).max())
as_written, named, default = logits(new), logits(root / "a", rope_theta=500000.0), logits(root / "b", rope_theta=10000.0)
same = all(LlamaConfig.from_pretrained(root / one).rope_parameters["rope_theta"] == 500000.0 for one in ["new", "a"])
print("mlx", mx.__version__, "mlx-lm", mlx_lm.__version__, "transformers", transformers.__version__)
print("config.json: rope_parameters", written["rope_parameters"], "rope_theta", written.get("rope_theta"))
print("transformers reads 500000 of both files:", same)
print("logits beside the file with rope_theta 500000:", differ(as_written, named))
print("logits beside the file with rope_theta 10000:", differ(as_written, default))
sys.exit(0 if same and differ(as_written, named) > 0.01 and differ(as_written, default) == 0 else 1)
PY
"$folder/venv/bin/python" "$folder/case.py" "$folder" 2>/dev/null
