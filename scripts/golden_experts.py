#!/usr/bin/env python3
"""Writes tests/golden/experts.txt: which experts the routers of transformers choose, with which weights, and what PyTorch says reaches the logits.

    python3 scripts/golden_experts.py        from the root of the tree; needs torch and transformers; runs on the CPU, in f32

A case is a line: its name, how many numbers, these (softmax first, normalise, scale, scoring, groups, best groups, best of a group, whether there are
biases, whether there are scales of experts), how many results, these: ids, weights, gradients of the logits. Inputs are tests/ops/golden_lines.h's: logits slot 0, with a thousandth of
the expert's number so that none are equal, gradients of the weights slot 1, biases slot 2, scales of
experts 1 and a quarter of slot 3."""
import types

import torch
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRouter
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

TOKENS, EXPERTS, SLOTS = 6, 12, 3
SIGMOID = 1
LINES = []


def values(slot, count):
    mixed = [((i + 1) * 2654435761 + slot * 40503 * 977) % 2**32 for i in range(count)]
    return torch.tensor([(m // 65536 % 257 - 128) / 64 for m in mixed], dtype=torch.float32)


class Gemma4(Gemma4TextRouter):
    """From the logits on: without the norm before them, which is an op of its own."""

    def __init__(self, config):
        super().__init__(types.SimpleNamespace(hidden_size=EXPERTS, num_experts=EXPERTS, rms_norm_eps=1e-6, top_k_experts=SLOTS))
        self.norm = torch.nn.Identity()
        self.scalar_root_size = 1.0
        self.weight = self.proj.weight


def case(name, router, softmax_first, normalise, scale=1.0, scoring=0, groups=1, top_groups=1, group_best=1, **config):
    """The router's own projection is the identity, so that what it gets are the logits."""
    module = router(types.SimpleNamespace(num_experts_per_tok=SLOTS, num_local_experts=EXPERTS, num_experts=EXPERTS,
                                          hidden_size=EXPERTS, norm_topk_prob=bool(normalise),
                                          routed_scaling_factor=scale, n_group=groups, topk_group=top_groups, **config))
    biased = hasattr(module, "e_score_correction_bias")
    logits = values(0, TOKENS * EXPERTS).view(TOKENS, EXPERTS) + torch.arange(EXPERTS) / 1024
    logits.requires_grad_()
    with torch.no_grad():
        module.weight.copy_(torch.eye(EXPERTS))
        if biased:
            module.e_score_correction_bias.copy_(values(2, EXPERTS) / 4)
        scaled = hasattr(module, "per_expert_scale")
        if scaled:
            module.per_expert_scale.copy_(1 + values(3, EXPERTS) / 4)
    _, weights, ids = module(logits)
    chosen_by = (logits.sigmoid() if scoring == SIGMOID else logits).detach()
    if biased:
        chosen_by = chosen_by + module.e_score_correction_bias
    order = chosen_by.gather(1, ids).argsort(dim=-1, descending=True)  # the routers do not sort
    ids, weights = ids.gather(1, order), weights.gather(1, order)
    (weights * values(1, TOKENS * SLOTS).view(TOKENS, SLOTS)).sum().backward()
    results = ids.flatten().tolist() + weights.flatten().tolist() + logits.grad.flatten().tolist()
    numbers = [softmax_first, normalise, scale, scoring, groups, top_groups, group_best, int(biased), int(scaled)]
    LINES.append(" ".join([name, str(len(numbers)), *(f"{n:.9g}" for n in numbers), str(len(results)),
                           *(f"{r:.9g}" for r in results)]))


case("mixtral", MixtralTopKRouter, 1, 1)
case("qwen3_moe", Qwen3MoeTopKRouter, 1, 0)
case("gpt_oss", GptOssTopKRouter, 0, 0)
case("deepseek_v3", DeepseekV3TopkRouter, 0, 1, scale=2.5, scoring=SIGMOID, groups=4, top_groups=2, group_best=2)
case("deepseek_v3_plain", DeepseekV3TopkRouter, 0, 0, scale=1.5, scoring=SIGMOID, groups=3, top_groups=2, group_best=2)
case("deepseek_v2", DeepseekV2TopkRouter, 1, 0, scale=16.0, groups=4, top_groups=2, topk_method="group_limited_greedy")
case("deepseek_v2_plain", DeepseekV2TopkRouter, 1, 0, scale=1.0, topk_method="greedy")
case("gemma4", Gemma4, 1, 1)
with open("tests/golden/experts.txt", "w", encoding="utf-8") as file:
    file.write("\n".join(LINES) + "\n")
