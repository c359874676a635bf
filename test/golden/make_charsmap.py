"""What `tokenizers` and SentencePiece make of texts with a compiled map of characters: writes charsmap.json.

    python make_charsmap.py        # tokenizers 0.23.3, sentencepiece 0.2.3
"""

import base64
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import normalizers

# Code points: letters that become others, beginnings of longer ones, line breaks, tabs, what is left out.
RULES = """AA\t61
AA 300\tE0
41\t62
41 42\t63
41 42 43\t64
FB01\t66 69
B2\t32
BD\t31 2044 32
1F600\t3A 29
61 301 302 303\t78
49\t69
09\t20
0A\t20
0D 0A\t20
A0\t20
AD\t
65 301\tE9
"""
WORDS = [
    "ªª̀ ABC ABAB AC A", "ﬁrst x² then ½ é", "x\r\ny\n\nz\tw", "\u00a0 a\u00a0 b \n", "á̂̃ á x\u00ada", "😀😀👩‍👩‍👧 🇩🇪",
    "Iİ İSTANBUL ĄÁ", "\ufeffbom A\ufeff", "", " ", "각 각", "e\u0301é\u0301 e\u0301\u0301", "a\x00A", "\x00A",
]  # fmt: skip


def trained(folder, squeezes):
    (folder / "rules.tsv").write_text(RULES)
    (folder / "text.txt").write_text("\n".join(["the sum of two numbers", "add both sides", "a b c d e"] * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "m"), vocab_size=24, minloglevel=2,
        normalization_rule_tsv=str(folder / "rules.tsv"), remove_extra_whitespaces=squeezes, add_dummy_prefix=False,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model"))


random.seed(3)
characters = [c for word in WORDS if "\x00" not in word for c in word] + list("AAABCa  ")
texts = WORDS + ["".join(random.choices(characters, k=random.randint(1, 9))) for _ in range(60)]
found = {}
with tempfile.TemporaryDirectory() as name:
    for key, squeezes in ("squeezed", True), ("kept", False):
        processor = trained(Path(name), squeezes)
        found[key] = [[text, processor.normalize(text).replace("▁", " ")] for text in texts]
    model = proto.ModelProto.FromString((Path(name) / "m.model").read_bytes())
charsmap = model.normalizer_spec.precompiled_charsmap
part = normalizers.Precompiled(charsmap)
found = {"map": base64.b64encode(charsmap).decode(), "precompiled": [[t, part.normalize_str(t)] for t in texts], **found}
(Path(__file__).parent / "charsmap.json").write_text(json.dumps(found, indent=0).replace("\n", "") + "\n")
