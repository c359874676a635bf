"""Trains tokenizers of every kind with `tokenizers` and writes them with the ids and texts of sentences: python train_tokenizers.py OUT."""
import base64
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "naïve user's é_1 — don't do not stop",
    "  two  spaces, \t a tab\n\nand lines \r\n",
    "x = 12,345.678 + ①²Ⅷ - 3 / 4",
    "ΑΣ Straße İstanbul ǅ ﬁ e\u0301 \u00ad\u200d\ufeff\u0085end",
    "漢字どこ한국어 𠀀😀👩‍👩‍👧 a😀b",
    "def f(x):\n    return x + 1  # …",
    "▁▁a ▁b_c <special> stepping step. <mask>x",
    "a--b -c!?;. 'quoted' \"text\" (n't) I've we're",
    "", " ", "é", "\u0903\u0301x",
]
CORPUS = TEXTS * 3 + ["the quick brown fox jumps over the lazy dog " * 3, "0123456789 " * 3, "aaa bbb ab abab -- ... user naïve"]
# Texts of tokens that are no whole characters, or have blanks in odd places.
p, d, n = pre_tokenizers, decoders, normalizers
LLAMA3 = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def bpe(pre, decoder, normalizer=None, size=420, alphabet=(), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoder
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    special = ["<unk>", "<special>"] if model.get("unk_token") else ["<special>"]
    suffix = {"end_of_word_suffix": model["end_of_word_suffix"]} if "end_of_word_suffix" in model else {}
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=list(alphabet), show_progress=False, **suffix))
    return tokenizer


def bytelevel(*cuts, **keys):
    whole = p.Sequence([*cuts, p.ByteLevel(add_prefix_space=False, use_regex=not cuts)]) if cuts else p.ByteLevel(**keys)
    return bpe(whole, d.ByteLevel(), alphabet=p.ByteLevel.alphabet())


def wordpiece(pre, normalizer, decoder):
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre, decoder
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=420, special_tokens=["<unk>", "<special>"], show_progress=False))
    return tokenizer


def unigram(pre, decoder, normalizer=None):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoder
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", "<special>"], unk_token="<unk>", show_progress=False))
    return tokenizer


def added(tokenizer):
    tokenizer.add_tokens([AddedToken("step", single_word=True), AddedToken("ab", normalized=True), AddedToken("é", normalized=False), AddedToken("a b", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


pieces = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]


def sentencepiece():
    trained = bpe(p.Metaspace(), pieces, unk_token="<unk>", size=300)
    json_ = json.loads(trained.to_str())
    vocab = json_["model"]["vocab"]
    for byte in bytes_:
        vocab[byte] = len(vocab)
    json_["model"].update(byte_fallback=True, fuse_unk=True)
    json_["pre_tokenizer"] = None
    json_["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    return Tokenizer.from_str(json.dumps(json_))


CHARSMAP = json.loads((pathlib.Path(__file__).parents[2] / "test/golden/charsmap.json").read_text())["map"]
WHOLE = d.Fuse()
TOKENIZERS = {
    "byte-level": bytelevel(add_prefix_space=False),
    "byte-level with a prefix": bytelevel(add_prefix_space=True),
    "byte-level as llama 3": bytelevel(p.Split(LLAMA3, "isolated")),
    "byte-level, digits one by one": bytelevel(p.Digits(individual_digits=True), p.Split(Regex(r"\s+"), "merged_with_next")),
    "byte-level with added tokens": added(bytelevel(add_prefix_space=False)),
    "byte-level, NFC": bpe(p.ByteLevel(add_prefix_space=False), d.ByteLevel(), n.NFC(), alphabet=p.ByteLevel.alphabet()),
    "whitespace": bpe(p.Whitespace(), WHOLE, unk_token="<unk>"),
    "whitespace split": bpe(p.WhitespaceSplit(), d.BPEDecoder(), unk_token="<unk>", end_of_word_suffix="</w>"),
    "punctuation, isolated": bpe(p.Punctuation(), WHOLE, unk_token="<unk>"),
    "punctuation, contiguous": bpe(p.Punctuation("contiguous"), WHOLE, unk_token="<unk>", fuse_unk=True),
    "a delimiter": bpe(p.CharDelimiterSplit("-"), WHOLE, unk_token="<unk>"),
    "lengths": bpe(p.FixedLength(3), WHOLE, unk_token="<unk>"),
    "metaspace, always": bpe(p.Metaspace(), d.Metaspace(), unk_token="<unk>"),
    "metaspace, never": bpe(p.Metaspace(prepend_scheme="never"), d.Metaspace(prepend_scheme="never"), unk_token="<unk>"),
    "metaspace, first, with added tokens": added(bpe(p.Metaspace(prepend_scheme="first"), d.Metaspace(prepend_scheme="first"), unk_token="<unk>")),
    "metaspace, not split": bpe(p.Metaspace(split=False), d.Metaspace(split=False), unk_token="<unk>"),
    "white space, then metaspace": bpe(p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="first")]), d.Metaspace(), unk_token="<unk>"),
    "pieces with bytes": sentencepiece(),
    "word pieces": wordpiece(p.BertPreTokenizer(), n.BertNormalizer(), d.WordPiece()),
    "word pieces, cased": wordpiece(p.BertPreTokenizer(), n.BertNormalizer(lowercase=False), d.WordPiece(cleanup=False)),
    "unigrams": unigram(p.Metaspace(), d.Metaspace()),
    "unigrams, a map of characters": unigram(p.Metaspace(), d.Metaspace(), n.Precompiled(base64.b64decode(CHARSMAP))),
    "unigrams, lower case": unigram(p.Sequence([p.Whitespace(), p.Digits()]), WHOLE, n.Sequence([n.NFD(), n.Lowercase(), n.StripAccents(), n.Strip()])),
    "replaced": bpe(p.Whitespace(), d.Sequence([d.Replace(Regex("[aeiou]"), "$&"), WHOLE]), n.Sequence([n.Replace(Regex("(a)(b)"), "$1\\1"), n.Replace("e", "$$")]), unk_token="<unk>"),
}
for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
    for invert in [False, True]:
        cut = p.Split(Regex(r"\s|[-.'\p{N}]"), behavior, invert=invert)
        TOKENIZERS[f"split, {behavior}{', inverted' if invert else ''}"] = bpe(cut, WHOLE, unk_token="<unk>")

found = []
for name, tokenizer in TOKENIZERS.items():
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        rows.append([text, ids, tokenizer.decode(ids, skip_special_tokens=False)])
    size = tokenizer.get_vocab_size()
    # Tokens in no order that a text gives.
    shuffled = [[(start * 7 + i * 31) % size for i in range(12)] for start in range(24)]
    decoded = [[ids, tokenizer.decode(ids, skip_special_tokens=False)] for ids in shuffled]
    found.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "texts": rows, "decoded": decoded})
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
