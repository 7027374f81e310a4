"""The demo model's tokenizer (byte-level BPE, digits never merged) and the files that it is kept in: GGUF and a
Hugging Face folder, written here byte by byte so that nothing but numpy is needed.

Knows the formats and the vocabulary; nothing of training."""
import collections
import json
import os
import re
import struct

import numpy as np

SPECIAL = ["<|end|>", "<|begin|>", "<|user|>", "<|assistant|>"]
END, BEGIN, USER, ASSISTANT = range(4)
# GPT-2's splitting rule for text in ASCII, which is all that the generator writes.
SPLIT = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
NAME = "mica demo"


def byte_letters():
    """GPT-2's printable letter for each byte."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = {b: chr(b) for b in plain}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(plain)))
    return [letters[b] for b in range(256)]


LETTERS = byte_letters()


class Tokenizer:
    """Byte-level BPE: tokens are the special ones, 256 bytes, then one for each merge in its order."""

    def __init__(self, merges):
        self.merges = merges
        self.tokens = SPECIAL + LETTERS + [a + b for a, b in merges]
        self.ids = {token: n for n, token in enumerate(self.tokens)}
        self.ranks = {pair: n for n, pair in enumerate(merges)}
        self.bytes = {letter: b for b, letter in enumerate(LETTERS)}
        self.known = {}

    def piece(self, text):
        parts = [LETTERS[b] for b in text.encode()]
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda n: self.ranks.get((parts[n], parts[n + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in self.ranks:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return [self.ids[p] for p in parts]

    def encode(self, text):
        ids, known = [], self.known
        for piece in SPLIT.findall(text):
            got = known.get(piece)
            if got is None:
                if len(known) > 200000:
                    known.clear()
                got = known[piece] = self.piece(piece)
            ids += got
        return ids

    def decode(self, ids):
        letters = "".join(self.tokens[i] for i in ids if i >= len(SPECIAL))
        return bytes(self.bytes[c] for c in letters).decode("utf-8", "replace")


def learn_tokenizer(texts, size):
    """Merges the most frequent pair of neighbours again and again, inside the pieces of SPLIT; never with a digit."""
    counts = collections.Counter(piece for text in texts for piece in SPLIT.findall(text))
    words = [([LETTERS[b] for b in piece.encode()], n) for piece, n in sorted(counts.items())
             if n > 2 and not any(c.isdigit() for c in piece)]
    pairs, places = collections.Counter(), collections.defaultdict(set)
    for at, (parts, n) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += n
            places[pair].add(at)
    merges = []
    while len(merges) < size - len(SPECIAL) - len(LETTERS):
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for at in places.pop(best):
            parts, n = words[at]
            for pair in zip(parts, parts[1:]):
                pairs[pair] -= n
            joined, i = [], 0
            while i < len(parts):
                two = tuple(parts[i:i + 2]) == best
                joined.append(parts[i] + parts[i + 1] if two else parts[i])
                i += 2 if two else 1
            parts[:] = joined
            for pair in zip(parts, parts[1:]):
                pairs[pair] += n
                places[pair].add(at)
        del pairs[best]
    return Tokenizer(merges)


# ---- GGUF ---------------------------------------------------------------------------------------------------

ALIGNMENT = 32
F32, F16, Q8_0 = 0, 1, 8  # ggml's numbers of the types


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    """Type number and bytes: bool, unsigned int, float, string or a list of one of the last two or of ints."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, gguf_string(value)
    kind = 8 if isinstance(value[0], str) else 5
    return 9, struct.pack("<IQ", kind, len(value)) + b"".join(
        gguf_string(v) if kind == 8 else struct.pack("<i", v) for v in value)


def q8_0_parts(rows):
    """Scales (float16) and bytes of an array [.., 32 n] in blocks of 32."""
    blocks = rows.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse
    quants = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    return scale.astype(np.float16), quants


def q8_0_round_trip(rows):
    scale, quants = q8_0_parts(rows)
    return (scale.astype(np.float32) * quants).reshape(rows.shape)


def stored(array, kind):
    if array.ndim == 1:
        return F32, array.astype("<f4").tobytes()
    if kind == F16:
        return F16, array.astype("<f2").tobytes()
    scale, quants = q8_0_parts(array)
    return Q8_0, np.concatenate([scale.view(np.int8).reshape(-1, 2), quants], 1).tobytes()


def gguf_bytes(tensors, shape, tokenizer, kind):
    """The whole file. tensors: name -> array in GGUF's names; shape: the settings of the network."""
    meta = {
        "general.architecture": "llama", "general.type": "model", "general.name": NAME, "general.license": "mit",
        "general.file_type": {F16: 1, Q8_0: 7}[kind], "general.quantization_version": 2,
        "llama.context_length": shape["context"], "llama.embedding_length": shape["width"],
        "llama.block_count": shape["layers"], "llama.feed_forward_length": shape["ffn"],
        "llama.attention.head_count": shape["heads"], "llama.attention.head_count_kv": shape["kv_heads"],
        "llama.attention.layer_norm_rms_epsilon": shape["eps"], "llama.rope.freq_base": shape["rope_base"],
        "llama.rope.dimension_count": shape["width"] // shape["heads"], "llama.vocab_size": len(tokenizer.tokens),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokenizer.tokens) - len(SPECIAL)),
        "tokenizer.ggml.merges": [a + " " + b for a, b in tokenizer.merges], "tokenizer.ggml.bos_token_id": BEGIN,
        "tokenizer.ggml.eos_token_id": END, "tokenizer.ggml.padding_token_id": END,
        "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": False, "tokenizer.chat_template": TEMPLATE
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    for key, value in meta.items():
        number, data = gguf_value(value)
        head += gguf_string(key) + struct.pack("<I", number) + data
    body = bytearray()
    for name, array in tensors.items():
        number, data = stored(array, kind)
        body += b"\0" * (-len(body) % ALIGNMENT)
        head += gguf_string(name) + struct.pack("<I", array.ndim) + struct.pack("<%dQ" % array.ndim, *array.shape[::-1])
        head += struct.pack("<IQ", number, len(body))
        body += data
    return head + b"\0" * (-len(head) % ALIGNMENT) + bytes(body)


def gguf_tensors(tensors, shape):
    """From Hugging Face's names to GGUF's, with the rows of q and k in the order of interleaved rope."""
    parts = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"
    }
    made = {}
    for name, array in tensors.items():
        heads = {"q_proj": shape["heads"], "k_proj": shape["kv_heads"]}.get(name.split(".")[-2])
        if heads:
            array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        layer = re.match(r"model\.layers\.(\d+)\.(.*)\.weight", name)
        made[
            "blk.%s.%s.weight" % (layer[1], parts[layer[2]]) if layer else
            {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]] = array
    return made


# ---- Hugging Face folder ------------------------------------------------------------------------------------


def write_folder(folder, tensors, shape, tokenizer):
    os.makedirs(folder, exist_ok=True)
    head, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, array in tensors.items():
        array = array.astype("<f2")
        head[name] = {"dtype": "F16", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    head = json.dumps(head).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + bytes(data))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": shape["width"],
        "intermediate_size": shape["ffn"], "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"], "head_dim": shape["width"] // shape["heads"], "hidden_act": "silu",
        "rms_norm_eps": shape["eps"], "rope_theta": shape["rope_base"], "max_position_embeddings": shape["context"],
        "vocab_size": len(tokenizer.tokens), "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": BEGIN, "eos_token_id": END, "dtype": "float16"
    }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    begin = {"SpecialToken": {"id": SPECIAL[BEGIN], "type_id": 0}}
    words = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level,
        "added_tokens": [{
            "id": n, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True
        } for n, text in enumerate(SPECIAL)], "post_processor": {
            "type": "TemplateProcessing", "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {SPECIAL[BEGIN]: {"id": SPECIAL[BEGIN], "ids": [BEGIN], "tokens": [SPECIAL[BEGIN]]}}
        }, "decoder": level, "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": tokenizer.ids,
            "merges": [a + " " + b for a, b in tokenizer.merges]
        }
    }
    kind = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[BEGIN], "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[END], "add_bos_token": True, "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE
    }
    for name, value in (("config.json", config), ("tokenizer.json", words), ("tokenizer_config.json", kind)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
            file.write("\n")
