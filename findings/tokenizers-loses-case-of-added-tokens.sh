#!/usr/bin/env bash
# tokenizers 0.23.3 gives an added token back in its normalised form: `<Tool>` of a tokenizer that lowers letters
# comes as `<tool>`, which is in no vocabulary, and a space is put before `<tool>` where Llama's `Prepend` is.
#
# Expected: the token that was added, as tokenizers 0.22.2 gives. Seen 2026-11-30: another one.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
cat >"$folder/case.py" <<'PY'
import sys
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

lower = Tokenizer(models.WordLevel({"[UNK]": 0, "x": 1}, unk_token="[UNK]"))
lower.normalizer = normalizers.Lowercase()
lower.pre_tokenizer = pre_tokenizers.Whitespace()
lower.add_tokens([AddedToken("<Tool>")])
id = lower.token_to_id("<Tool>")
name = lower.id_to_token(id)
llama = Tokenizer(models.BPE({"▁": 0, "a": 1}, []))
llama.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
llama.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
llama.add_tokens([AddedToken("<tool>")])
text = llama.decode([1, llama.token_to_id("<tool>")])
print(f"tokenizers {tokenizers.__version__}: <Tool> is {id}, {id} is {name}, {name} is {lower.token_to_id(name)}; {text!r}")
sys.exit(0 if (name, text) == ("<Tool>", "a<tool>") else 1)
PY
"$folder/venv/bin/pip" install --quiet tokenizers==0.22.2
"$folder/venv/bin/python" "$folder/case.py"
"$folder/venv/bin/pip" install --quiet tokenizers==0.23.3
if "$folder/venv/bin/python" "$folder/case.py"; then exit 1; fi
