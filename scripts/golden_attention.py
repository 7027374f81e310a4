#!/usr/bin/env python3
"""Makes tests/golden/attention.txt again: attention and its gradient as PyTorch and transformers have them, in float64 on the CPU.

    python3 -m venv VENV && VENV/bin/pip install torch transformers numpy
    VENV/bin/python scripts/golden_attention.py

A case is a line "case NAME tokens heads kv_heads keys dim v_dim bidirectional window softcap scale", then arrays "NAME count numbers..", then
"end". Queries are the last `tokens` positions of the keys. Arrays are q [tokens, heads, dim], k, v, dy, and what came out: y, dq, dk, dv, dsinks; mask
(added) or hides (0 or 1) is [heads, tokens, keys]; sinks and slopes [heads]. Cases without dy have no gradient: those of sequences one behind another, of
which starts [sequences + 1] says where each begins, and those of latent attention, whose result goes through up [heads, v_dim, dim of y] where it is
absorbed: dim is then that of the latents and what is rotated, and v_dim that of the latents."""
import os
import types

import torch
import torch.nn.functional as F
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "attention.txt")
TOKENS, HEADS, KV_HEADS, KEYS, DIM, V_DIM = 5, 4, 2, 9, 6, 6


def seen(tokens, keys, causal, window):
    """Which keys each query sees."""
    position = torch.arange(keys - tokens, keys)[:, None]
    key = torch.arange(keys)[None, :]
    see = torch.ones(tokens, keys, dtype=torch.bool)
    if causal:
        see &= key <= position
    if window:
        see &= key > position - window
    return see


def additive(see):
    return torch.zeros(see.shape, dtype=torch.float64).masked_fill(~see, float("-inf"))


def sdpa(q, k, v, mask, scale=None, **_):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True, scale=scale)[0]


def eager(function):
    def run(q, k, v, mask, sinks=None, softcap=None, scale=None, **_):
        module = types.SimpleNamespace(num_key_value_groups=HEADS // KV_HEADS, sinks=sinks, training=False, head_dim=DIM)
        more = {"softcap": softcap} if softcap else {}
        out, _ = function(module, q[None], k[None], v[None], mask.expand(HEADS, -1, -1)[None], scaling=scale, dropout=0.0, **more)
        return out[0].transpose(0, 1)  # eager forms give tokens first
    return run


def write(file, head, arrays):
    file.write("case " + " ".join(str(n) for n in head) + "\n")
    for key, array in arrays.items():
        numbers = array.detach().double().contiguous().flatten().tolist()
        file.write(f"{key} {len(numbers)} " + " ".join(f"{x:.13g}" for x in numbers) + "\n")
    file.write("end\n")


def packed(file, starts, scale):
    """Causal, each sequence by itself."""
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    all_of = starts[-1]
    q, k, v = draw(HEADS, all_of, DIM), draw(KV_HEADS, all_of, DIM), draw(KV_HEADS, all_of, V_DIM)
    parts = [F.scaled_dot_product_attention(q[None, :, a:b], k[None, :, a:b], v[None, :, a:b], is_causal=True, enable_gqa=True, scale=scale)[0]
             for a, b in zip(starts, starts[1:])]
    turn = lambda x: x.transpose(0, 1)
    write(file, ["packed", all_of, HEADS, KV_HEADS, all_of, DIM, V_DIM, 0, 0, 0, f"{scale:.9g}"],
          {"q": turn(q), "k": turn(k), "v": turn(v), "y": turn(torch.cat(parts, 1)), "starts": torch.tensor(starts)})


def latent(file):
    """DeepSeek V3's attention: what goes into its product of scores, and what comes out of it before the last projection; then the same of the latents."""
    tokens, heads, nope, rope, rank, v_dim = 6, 3, 4, 4, 8, 5
    config = deepseek.DeepseekV3Config(hidden_size=16, num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=7, kv_lora_rank=rank, qk_nope_head_dim=nope,
                                       qk_rope_head_dim=rope, v_head_dim=v_dim, max_position_embeddings=64, attention_bias=False, num_hidden_layers=1)
    config._attn_implementation = "eager"
    layer = deepseek.DeepseekV3Attention(config, 0).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x = torch.randn(1, tokens, 16, dtype=torch.float64)
    positions = torch.arange(tokens)[None]
    cos, sin = deepseek.DeepseekV3RotaryEmbedding(config)(x, positions)
    seen_by, kept = additive(seen(tokens, tokens, True, 0))[None, None], {}
    eager_forward, expand = deepseek.eager_attention_forward, layer.expand_kv

    def keep(module, q, k, v, *rest, **more):
        out = eager_forward(module, q, k, v, *rest, **more)
        kept.update(q=q[0].transpose(0, 1), k=k[0].transpose(0, 1), v=v[0].transpose(0, 1), y=out[0][0])
        return out

    def keep_latents(latents, rotated):
        kept.update(latents=latents[0, 0], rotated=rotated[0, 0])
        return expand(latents, rotated)
    deepseek.eager_attention_forward, layer.expand_kv = keep, keep_latents
    layer(x, (cos, sin), seen_by)
    scale = layer.scaling
    write(file, ["mla-plain", tokens, heads, heads, tokens, nope + rope, v_dim, 0, 0, 0, f"{scale:.9g}"], {n: kept[n] for n in "qkvy"})
    up = layer.kv_b_proj.weight.view(heads, nope + v_dim, rank)
    q = torch.cat([torch.einsum("thn,hnr->thr", kept["q"][..., :nope], up[:, :nope]), kept["q"][..., nope:]], -1)
    k = torch.cat([kept["latents"], kept["rotated"]], -1)[:, None]
    write(file, ["mla-absorbed", tokens, heads, 1, tokens, rank + rope, rank, 0, 0, 0, f"{scale:.9g}"],
          {"q": q, "k": k, "v": kept["latents"][:, None], "y": kept["y"], "up": up[:, nope:]})


def case(file, name, run, causal=True, window=0, mask=None, sinks=None, softcap=0.0, v_dim=V_DIM, scale=None, slopes=None):
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    q, k, v = draw(HEADS, TOKENS, DIM), draw(KV_HEADS, KEYS, DIM), draw(KV_HEADS, KEYS, v_dim)
    dy = draw(HEADS, TOKENS, v_dim)
    leaves = [q, k, v] + ([sinks] if sinks is not None else [])
    for leaf in leaves:
        leaf.requires_grad_()
    see = seen(TOKENS, KEYS, causal, window)
    if mask is not None and mask.dtype == torch.bool:
        whole = mask & see
    else:
        whole = additive(see) + (mask if mask is not None else 0)
    if slopes is not None:
        whole = whole + slopes[:, None, None] * (torch.arange(KEYS)[None, :] - torch.arange(KEYS - TOKENS, KEYS)[:, None])
    y = run(q, k, v, whole, sinks=sinks, softcap=softcap or None, scale=scale)
    y.backward(dy)
    arrays = {"q": q.transpose(0, 1), "k": k.transpose(0, 1), "v": v.transpose(0, 1), "dy": dy.transpose(0, 1), "y": y.transpose(0, 1),
              "dq": q.grad.transpose(0, 1), "dk": k.grad.transpose(0, 1), "dv": v.grad.transpose(0, 1)}
    if sinks is not None:
        arrays |= {"sinks": sinks, "dsinks": sinks.grad}
    if mask is not None:
        arrays["hides" if mask.dtype == torch.bool else "mask"] = mask.expand(HEADS, -1, -1)
    if slopes is not None:
        arrays["slopes"] = slopes
    write(file, [name, TOKENS, HEADS, KV_HEADS, KEYS, DIM, v_dim, int(not causal), window, f"{softcap:g}", f"{scale:.9g}"], arrays)


def main():
    torch.manual_seed(17)
    scale = float(torch.tensor(0.40625, dtype=torch.float32))  # the same number in f32
    hidden = torch.rand(HEADS, TOKENS, KEYS) > 0.3
    hidden[:, :, 0] = True  # every query sees something, or PyTorch has NaN
    with open(HOME, "w") as file:
        case(file, "sdpa-causal", sdpa, scale=scale)
        case(file, "sdpa-bidirectional", sdpa, causal=False, scale=scale)
        case(file, "sdpa-window", sdpa, window=3, scale=scale)
        case(file, "sdpa-added-mask", sdpa, causal=False, mask=torch.randn(HEADS, TOKENS, KEYS, dtype=torch.float64), scale=scale)
        case(file, "sdpa-bool-mask", sdpa, mask=hidden, scale=scale)
        case(file, "sdpa-value-size", sdpa, v_dim=4, scale=scale)
        case(file, "gpt-oss-sinks", eager(gpt_oss), sinks=torch.randn(HEADS, dtype=torch.float64), scale=scale)
        case(file, "gpt-oss-sinks-window", eager(gpt_oss), window=4, sinks=torch.randn(HEADS, dtype=torch.float64), scale=scale)
        case(file, "gemma2-softcap", eager(gemma2), softcap=1.5, scale=scale)
        case(file, "sdpa-alibi", sdpa, scale=scale, slopes=2.0 ** -torch.arange(1, HEADS + 1, dtype=torch.float64))
        case(file, "sdpa-alibi-window", sdpa, causal=False, window=4, scale=scale, slopes=2.0 ** -torch.arange(2, HEADS + 2, dtype=torch.float64))
        packed(file, [0, 3, 4, 11, 16], scale)
        latent(file)
    print(f"{os.path.normpath(HOME)}: {os.path.getsize(HOME)} bytes; torch {torch.__version__}")


main()
