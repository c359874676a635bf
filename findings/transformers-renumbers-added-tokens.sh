#!/usr/bin/env bash
# transformers 5.24 gives a token of `added_tokens_decoder` in tokenizer_config.json another id than the one that
# stands there, where tokenizer.json lacks the token and ids before it are free, as after padding an embedding.
#
# Expected: the id that the file names, or a warning. Seen 2026-11-30: the next free id, no warning.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cat >"$folder/case.py" <<'PY'
import json, pathlib, sys, warnings
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers
import transformers
from transformers import AutoTokenizer

folder = pathlib.Path(sys.argv[1]) / "model"
folder.mkdir()
words = ["[UNK]", "apples", "has", "Tom"]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.save(str(folder / "tokenizer.json"))
flags = {name: False for name in ["lstrip", "rstrip", "normalized", "single_word"]}
added = {"7": {"content": "<step>", "special": True, **flags}}
config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "added_tokens_decoder": added}
(folder / "tokenizer_config.json").write_text(json.dumps(config))
with warnings.catch_warnings(record=True) as warned:
    auto = AutoTokenizer.from_pretrained(folder)
found = auto.convert_tokens_to_ids("<step>")
print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)
print("tokenizer_config.json: <step> is 7; AutoTokenizer:", found, "warnings:", len(warned))
print("ids of 'Tom <step>':", auto("Tom <step>")["input_ids"])
sys.exit(0 if found == len(words) and not warned else 1)
PY
"$folder/venv/bin/python" "$folder/case.py" "$folder" 2>/dev/null
