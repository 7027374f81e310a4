#!/usr/bin/env python3
"""Makes tests/model/golden/tokenizers again: small tokenizers of every kind, trained here with the tokenizers package, and what
that package makes of 1,000 random texts.

    golden_tokenizers.py [FOLDER]      needs: pip install tokenizers sentencepiece protobuf

NAME.json is the tokenizer. Line i of NAME.sums has four numbers of text i: FNV-1a of its ids with the text of special tokens
taken as plain text; of its ids with special tokens, and those added that the model wants; of the text that the first ids decode
to; of the text that the second decode to with special tokens shown. The texts come from a generator that tests/model/test_tokenizer_golden.c has too:
same seed, same texts."""
import json
import os
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = 1000

# ---- texts: in step with tests/model/test_tokenizer_golden.c (golden-texts) -----------------------------------------
WORDS = ["the", "The", "a", "model", "modeling", "tokenizer", "token", "text", "text's", "we'll", "I'm", "don't", "YOU'RE", "it's",
         "hello", "world", "running", "unhappiness", "Äpfel", "naïve", "coöperate", "русский", "слово", "λόγος", "日本語", "東京",
         "한국어", "नमस्ते", "สวัสดี", "مرحبا", "שלום", "Việt", "İstanbul", "ﬁne", "Ⅷ", "①②", "½", "1234567", "3.14", "2024", "x=y+1;",
         "{}", "...", "?!", "--", "<s>", "</s>", "<|eot|>", "[MASK]", "[SEP]", "<user>", "<extra>", "👍🏽", "👩‍👩‍👧", "🇩🇪", "❤️"]
BLANKS = [" ", " ", " ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", ""]
RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0x20, 0x7e), (0xa1, 0xff), (0x100, 0x17f), (0x300, 0x33f), (0x391, 0x3a1), (0x3b1, 0x3c9),
          (0x410, 0x44f), (0x5d0, 0x5ea), (0x621, 0x63a), (0x660, 0x669), (0x905, 0x939), (0xe01, 0xe30), (0x1e00, 0x1eff),
          (0x2010, 0x2027), (0x2190, 0x21ff), (0x2460, 0x24ff), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x4fff),
          (0xac00, 0xacff), (0xff01, 0xff5e), (0x1f300, 0x1f5ff), (0x20000, 0x200ff), (0x200b, 0x200f), (0x1, 0x1f)]


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        """splitmix64"""
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return (z ^ (z >> 31)) % limit


def make_text(index):
    random = Random(index)
    parts = []
    for _ in range(random.below(16)):
        if random.below(3) != 0:
            parts.append(WORDS[random.below(len(WORDS))])
        else:
            for _ in range(1 + random.below(6)):
                first, last = RANGES[random.below(len(RANGES))]
                parts.append(chr(first + random.below(last - first + 1)))
        parts.append(BLANKS[random.below(len(BLANKS))])
    return "".join(parts)


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


# ---- the tokenizers ---------------------------------------------------------------------------------------------------
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def corpus():
    for i in range(4000):
        yield make_text(1_000_000 + i)


def words_only():
    """Few letters: for a trainer that takes all of them into the vocabulary."""
    random = Random(7)
    for _ in range(4000):
        yield " ".join(WORDS[random.below(len(WORDS))] + "".join(WORDS[random.below(20)] for _ in range(random.below(3))) for _ in range(10))


def train_byte_level(pre, specials, vocab=500):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gpt2():
    tokenizer = train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|eot|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta():
    tokenizer = train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def llama3():
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer = train_byte_level(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)]), ["<s>", "<|eot|>"])
    tokenizer.model.ignore_merges = True
    template = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen():
    split = pre_tokenizers.Split(Regex(QWEN), "isolated")
    tokenizer = train_byte_level(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)]), ["<|eot|>"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("<user>", normalized=False), AddedToken("<extra>", normalized=True)])
    return tokenizer


def falcon():
    """The alphabet of bytes in the middle: what follows sees letters."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(False),
                                   pre_tokenizers.Digits(), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return train_byte_level(pre, ["<|eot|>"])


def with_bytes(tokenizer, first):
    """The same BPE with <0x00> to <0xFF> behind its first tokens."""
    data = json.loads(tokenizer.to_str())
    vocab = data["model"]["vocab"]
    texts = sorted(vocab, key=vocab.get)
    texts = texts[:first] + ["<0x%02X>" % i for i in range(256)] + texts[first:]
    data["model"]["vocab"] = {text: i for i, text in enumerate(texts)}
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return Tokenizer.from_str(json.dumps(data))


def train_sentencepiece(bos):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False, limit_alphabet=160))
    tokenizer = with_bytes(tokenizer, 3)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def llama():
    tokenizer = train_sentencepiece(True)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def metaspace():
    tokenizer = train_sentencepiece(False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def train_unigram(normalizer):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(words_only(), trainers.UnigramTrainer(
        vocab_size=500, special_tokens=["<unk>", "<s>", "</s>", "<mask>"], unk_token="<unk>", show_progress=False))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def unigram():
    return train_unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]))


def charsmap():
    """A map of a few characters, compiled by sentencepiece."""
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        rules = {"\ufb01": "fi", "\u2460": "1", "\u00bd": "1/2", "\uff21": "A", "a\u0308": "\u00e4", "\t": " ", "e\u0301": "\u00e9", "\u00ef": "i"}
        with open(folder + "/rules.tsv", "w") as file:
            for key, value in rules.items():
                file.write(" ".join("%X" % ord(c) for c in key) + "\t" + " ".join("%X" % ord(c) for c in value) + "\n")
        with open(folder + "/text", "w") as file:
            file.write("\n".join(words_only()))
        sentencepiece.SentencePieceTrainer.train(input=folder + "/text", model_prefix=folder + "/m", vocab_size=300, hard_vocab_limit=False,
                                                 normalization_rule_tsv=folder + "/rules.tsv", character_coverage=0.99, minloglevel=2)
        from sentencepiece import sentencepiece_model_pb2
        model = sentencepiece_model_pb2.ModelProto()
        with open(folder + "/m.model", "rb") as file:
            model.ParseFromString(file.read())
    return train_unigram(normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap))


def train_bert(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=None if lowercase else False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=600, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False, limit_alphabet=200))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def bert_uncased():
    return train_bert(True)


def bert_cased():
    return train_bert(False)


def steps():
    """What the others do not use: more steps, and added tokens that eat blanks, stand alone, or are looked for in normal text."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip(),
                                                 normalizers.Replace("--", "—")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("=", "merged_with_next"), pre_tokenizers.Split(Regex("[aeiou]y"), "merged_with_previous"),
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Split(Regex("[,;]"), "removed"), pre_tokenizers.Split(Regex("o+"), "contiguous")])
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=600, special_tokens=["[UNK]"], end_of_word_suffix="</w>", show_progress=False, limit_alphabet=150))
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True), AddedToken("<user>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("you're", normalized=True), AddedToken("the", normalized=True, single_word=True), AddedToken("text", single_word=True, normalized=False),
                          AddedToken("<extra>", normalized=True, lstrip=True, rstrip=True)])
    return tokenizer


ALL = [gpt2, roberta, llama3, qwen, falcon, llama, metaspace, unigram, charsmap, bert_uncased, bert_cased, steps]


def ids_bytes(ids):
    return b"".join(i.to_bytes(4, "little") for i in ids)


def sums_of(tokenizer, text):
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    special = tokenizer.encode(text, add_special_tokens=True).ids
    shown = [tokenizer.decode(plain, skip_special_tokens=True), tokenizer.decode(special, skip_special_tokens=False)]
    sums = [fnv(ids_bytes(plain)), fnv(ids_bytes(special))] + [fnv(s.encode()) for s in shown]
    if isinstance(tokenizer.model, models.Unigram) and any(tokenizer.id_to_token(i) in ("<s>", "</s>", "<mask>") for i in plain):
        sums[0] = sums[2] = 0
    return sums


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/model/golden/tokenizers")
    for make in ALL:
        tokenizer = make()
        path = os.path.join(folder, make.__name__)
        with open(path + ".json", "w") as file:
            json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")
        with open(path + ".sums", "w") as file:
            for i in range(TEXTS):
                file.write(" ".join("%08x" % s for s in sums_of(tokenizer, make_text(i))) + "\n")
        print(make.__name__, tokenizer.get_vocab_size(), os.path.getsize(path + ".json"))


if __name__ == "__main__":
    main()
