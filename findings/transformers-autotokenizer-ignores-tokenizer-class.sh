#!/usr/bin/env bash
# transformers 5.24 AutoTokenizer takes Qwen2Tokenizer for a model of type qwen2 although tokenizer_config.json names
# PreTrainedTokenizerFast, and then cuts texts unlike the tokenizer.json that lies there.
#
# Expected: the class that is named, and the ids of tokenizer.json, as PreTrainedTokenizerFast and `tokenizers` give.
# Seen 2026-11-29: another class, other ids, no warning.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cat >"$folder/case.py" <<'PY'
import json, pathlib, sys
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

folder = pathlib.Path(sys.argv[1]) / "model"
folder.mkdir()
words = ["[UNK]", "apples", "has", "Tom", "twelve"] + list("abcdefghijklmnopqrstuvwxyzT")
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(
    json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"})
)
(folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}))
text = "Tom has twelve apples"
named = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), unk_token="[UNK]")
auto = AutoTokenizer.from_pretrained(folder)
print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)
print("named class:", named(text)["input_ids"])
print(type(auto).__name__ + ":", auto(text)["input_ids"])
sys.exit(0 if type(auto).__name__ != "PreTrainedTokenizerFast" and auto(text)["input_ids"] != named(text)["input_ids"] else 1)
PY
"$folder/venv/bin/python" "$folder/case.py" "$folder" 2>/dev/null
