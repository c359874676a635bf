"""What pre-tokenizers, normalizers and decoders of `tokenizers` make of texts: writes tokenizer-parts.json.

    python make_tokenizer_parts.py        # tokenizers 0.23.3
"""

import json
from pathlib import Path

from tokenizers import Regex, decoders as d, normalizers as n, pre_tokenizers as p

TEXTS = ["naïve user's é_1 — x‍y ①²", " a  b--c -d ", "a..b!?c 12²Ⅷ", "a😀bcd 漢𠀀字", "▁x y\u0085z\ufeff\n"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
EMPTY = ["^", "$", r"(?!\p{L})", r"(?<!\p{L})", r"(?=\d{3})", r"(?<=\n)", r"(?<=[a-z])(?=[^a-z])"]
PRE = [
    *[p.Split(Regex(r"\s|[-.']"), b, invert=i) for b in BEHAVIORS for i in (False, True)],
    *[p.Punctuation(b) for b in BEHAVIORS],
    *[p.Metaspace(prepend_scheme=s, split=c) for s in ("always", "first", "never") for c in (True, False)],
    p.Split("-", "isolated"), p.Whitespace(), p.WhitespaceSplit(), p.BertPreTokenizer(), p.Digits(True), p.Digits(False),
    p.CharDelimiterSplit("-"), p.FixedLength(2), p.ByteLevel(add_prefix_space=True), p.ByteLevel(add_prefix_space=False),
    p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="first")]),
    p.Sequence([p.Digits(), p.ByteLevel(add_prefix_space=True)]),
    *[p.Split(Regex(e), b) for e in EMPTY for b in ("isolated", "merged_with_next")], p.Split(r"\p{N}{1,3}", "isolated"),
]
WORDS = ["ΑΣ İ Straße", "e\u0301 é \u0903x", "x\u00ad\u0085y\ufeffz\u200b", "漢𠀀 a", "😀a😀", "  ab ba\u2003", "aa"]
NORMAL = [
    n.Lowercase(), n.StripAccents(), n.Strip(), n.Strip(left=True, right=False), n.NFC(), n.NFKD(), n.Prepend("▁"),
    n.BertNormalizer(), n.BertNormalizer(lowercase=False), n.BertNormalizer(strip_accents=False, handle_chinese_chars=False),
    n.Replace("a", "$&$1"), n.Replace(Regex("(a)(b)?"), "$1\\1"), *[n.Replace(Regex(e), "_") for e in EMPTY], n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]),
]
TOKENS = [
    ["▁▁a", "▁b▁", "▁"], ["<0xC3>", "<0xA9>", "<0xC3>", "a", "<0xEF>", "<0xBB>", "<0xBF>", "<0xzz>"], ["a</w>", "b", "</w>"],
    ["é", "a b", "Ġx", "Ã", "©", "é b"], ["do", "not", "##x", "do not", ".", "n't", "'"], ["  a  ", " b ", "c"], ["aei", "ou"],
]
DECODERS = [
    d.ByteLevel(), d.Metaspace(), d.Metaspace(prepend_scheme="never"), d.Metaspace(prepend_scheme="first"), d.ByteFallback(), d.Fuse(),
    d.Strip(" ", 1, 0), d.Strip(" ", 0, 2), d.BPEDecoder(), d.WordPiece(), d.WordPiece(cleanup=False), d.Replace("▁", " "),
    d.Replace(Regex("[aeiou]"), "$&"), d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]),
]


def state(part):
    return json.loads(part.__getstate__())


found = {
    "preTokenizers": [[state(part), [[text, [piece for piece, _ in part.pre_tokenize_str(text)]] for text in TEXTS]] for part in PRE],
    "normalizers": [[state(part), [[text, part.normalize_str(text)] for text in WORDS]] for part in NORMAL],
    "decoders": [[state(part), [[tokens, part.decode(tokens)] for tokens in TOKENS]] for part in DECODERS],
}
out = Path(__file__).parent / "tokenizer-parts.json"
out.write_text(json.dumps(found, ensure_ascii=True, indent=0).replace("\n", "") + "\n")
