"""Ids that `tokenizers` gives to texts with added tokens of every kind: writes added-tokens.json.

    python make_added_tokens.py        # tokenizers 0.23.3
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers as n, pre_tokenizers as p

# Without é, ß and 日: the model spells them by bytes, unless an added token stands there.
LETTERS = "abdegilnoprstxE▁<>\u0301\n "
VOCAB = {token: i for i, token in enumerate(["<unk>", *LETTERS, *[f"<0x{byte:02X}>" for byte in range(256)]])}
TOKENS = ["é", "日", "<s>", "<s>x", "step", "trail ", " lead", "\n\n"]
TEXTS = ["é e\u0301 é", "日a日 日", "a <s>x b<s>x", "step stepping Step", "trail trail  x", "x lead a lead", "a\n\nb \n\n x"]
NORMAL = {"none": None, "NFC": n.NFC(), "lower": n.Lowercase(), "prepend": n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")])}
FLAGS = ["", "single_word", "lstrip", "rstrip", "normalized", "normalized single_word", "normalized lstrip"]


def case(normalizer, flags):
    tokenizer = Tokenizer(models.BPE(VOCAB, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    if normalizer:
        tokenizer.normalizer = normalizer
    else:
        tokenizer.pre_tokenizer = p.Metaspace(prepend_scheme="first")
    known = {flag: flag in flags.split() for flag in ["single_word", "lstrip", "rstrip", "normalized"]}
    tokenizer.add_tokens([AddedToken(token, **{**known, "normalized": token == "<s>x" or known["normalized"]}) for token in TOKENS])
    parts = json.loads(tokenizer.to_str())
    parts["model"]["vocab"] = None
    return {"tokenizer": parts, "ids": [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]}


cases = {f"{name}, {flags or 'no flag'}": case(part, flags) for name, part in NORMAL.items() for flags in FLAGS}
out = Path(__file__).parent / "added-tokens.json"
found = {"vocab": VOCAB, "texts": TEXTS, "cases": cases}
out.write_text(json.dumps(found, ensure_ascii=True, separators=(",", ":")) + "\n")
