#!/usr/bin/env python3
"""Trains the model inside mica: a Llama of 2.6 million parameters, on text that demo_text.py writes while it learns.

    scripts/train_demo.py --out FOLDER              about nine minutes on one GPU
    scripts/train_demo.py --out FOLDER --smoke      the same path in a minute on a CPU; the model learns next to nothing

Writes demo-f16.gguf, demo-q8_0.gguf, hf/ (the same as a Hugging Face folder), skills.txt (held-out problems with their
answers) and report.json (loss, share of right answers, greedy texts). Needs PyTorch and numpy."""
import argparse
import json
import math
import multiprocessing
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import demo_files as files
import demo_text as text

SHAPE = {
    "width": 256, "ffn": 512, "layers": 4, "heads": 4, "kv_heads": 2, "context": 512, "eps": 1e-5, "rope_base": 10000.0
}
VOCABULARY = 1024
LARGEST = 3000000  # bytes of the Q8_0 file
PROMPTS = [
    "Once upon a time", "One day, a little fox", "12 + 35 =", "The word garden is spelled",
    "Tom has a red ball. Mia has a blue kite. What colour is the ball?"
]
QUESTIONS = [
    "Tell me a story about a fox.", "What is 123 + 456?", "How do you spell river?", "Who are you?",
    "What is the opposite of hot?", "Count from 7 to 12."
]

# ---- text to tokens -----------------------------------------------------------------------------------------

MARKS = {id(text.USER): files.USER, id(text.ASSISTANT): files.ASSISTANT, id(text.END): files.END}


def encode(tokenizer, document):
    ids = [files.BEGIN]
    for part in document:
        ids += tokenizer.encode(part) if isinstance(part, str) else [MARKS[id(part)]]
    return ids


def rows_of_text(job):
    """[rows, context + 1]: each row begins with a document and ends wherever it is full."""
    tokenizer, seed, rows = job
    r = random.Random(seed)
    made = np.empty((rows, SHAPE["context"] + 1), np.int16)
    for row in made:
        ids = []
        while len(ids) < len(row):
            ids += encode(tokenizer, text.document(r))
        row[:] = ids[:len(row)]
    return made


class Text:
    """Rows on the device, written by other processes; more arrive until `most` are there."""

    def __init__(self, tokenizer, seed, workers, chunk, most, device):
        self.device, self.filled, self.most = device, 0, most
        jobs = ((tokenizer, (seed << 32) + n, chunk) for n in range(-(-most // chunk)))
        self.pool = multiprocessing.get_context("fork").Pool(workers)
        self.coming = self.pool.imap_unordered(rows_of_text, jobs)
        self.rows = torch.empty((most, SHAPE["context"] + 1), dtype=torch.int16, device=device)

    def take(self, wait=False):
        while self.pool and (self.filled < self.most):
            try:
                rows = self.coming.next(None if wait else 0)
            except multiprocessing.TimeoutError:
                return
            rows = torch.from_numpy(rows)[:self.most - self.filled]
            self.rows[self.filled:self.filled + len(rows)] = rows.to(self.device)
            self.filled += len(rows)
            if wait:
                return
        self.close()

    def batch(self, rows):
        return self.rows[torch.randint(self.filled, (rows, ), device=self.device)].long()

    def close(self):
        if self.pool:
            self.pool.terminate()
            self.pool = None


# ---- network: named as Hugging Face names it ----------------------------------------------------------------


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):

    def __init__(self):
        super().__init__()
        width, self.size = SHAPE["width"], SHAPE["width"] // SHAPE["heads"]
        self.q_proj = nn.Linear(width, SHAPE["heads"] * self.size, bias=False)
        self.k_proj = nn.Linear(width, SHAPE["kv_heads"] * self.size, bias=False)
        self.v_proj = nn.Linear(width, SHAPE["kv_heads"] * self.size, bias=False)
        self.o_proj = nn.Linear(SHAPE["heads"] * self.size, width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape
        q, k, v = (p(x).view(rows, length, -1, self.size).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        share = SHAPE["heads"] // SHAPE["kv_heads"]
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        got = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(got.transpose(1, 2).reshape(rows, length, -1))


class Feed(nn.Module):

    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(SHAPE["width"], SHAPE["ffn"], bias=False)
        self.up_proj = nn.Linear(SHAPE["width"], SHAPE["ffn"], bias=False)
        self.down_proj = nn.Linear(SHAPE["ffn"], SHAPE["width"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):

    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(SHAPE["width"], SHAPE["eps"])
        self.self_attn = Attention()
        self.post_attention_layernorm = nn.RMSNorm(SHAPE["width"], SHAPE["eps"])
        self.mlp = Feed()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, SHAPE["width"])
        self.layers = nn.ModuleList(Layer() for _ in range(SHAPE["layers"]))
        self.norm = nn.RMSNorm(SHAPE["width"], SHAPE["eps"])
        size = SHAPE["width"] // SHAPE["heads"]
        angle = torch.outer(
            torch.arange(SHAPE["context"]).float(), SHAPE["rope_base"]**(-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * SHAPE["layers"]) if last else 0.02)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def loss(self, rows):
        logits = self(rows[:, :-1])
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), rows[:, 1:].reshape(-1))


def sixteen_bits(array):
    return array.astype(np.float16).astype(np.float32)


def eight_bits(array):
    return files.q8_0_round_trip(sixteen_bits(array)) if array.ndim == 2 else sixteen_bits(array)


def arrays(net):
    return {"model." + name: p.detach().float().cpu().numpy() for name, p in net.named_parameters()}


def like(net, change):
    """The same network with its weights changed by a function of numpy arrays."""
    made = Llama().to(next(net.parameters()).device)
    state = net.state_dict()
    made.load_state_dict({n: torch.from_numpy(change(p.float().cpu().numpy())) for n, p in state.items()})
    return made


# ---- what it can do -----------------------------------------------------------------------------------------


def asked(tokenizer, mode, prompt):
    return encode(tokenizer, [prompt] if mode == "text" else [text.USER, prompt, text.ASSISTANT])


@torch.no_grad()
def right_share(net, tokenizer, problems):
    """The share of problems whose greedy answer is the right one: each of its tokens is the likeliest after those
    before it. A conversation's answer has to end where it should."""
    device = next(net.parameters()).device
    right = 0
    for at in range(0, len(problems), 64):
        some = problems[at:at + 64]
        heads = [asked(tokenizer, mode, prompt) for mode, prompt, _ in some]
        tails = [tokenizer.encode(answer) + ([files.END] if mode == "chat" else []) for mode, _, answer in some]
        width = max(len(h) + len(t) for h, t in zip(heads, tails))
        ids = torch.full((len(some), width), files.END)
        for n, (h, t) in enumerate(zip(heads, tails)):
            ids[n, :len(h) + len(t)] = torch.tensor(h + t)
        best = net(ids.to(device)).argmax(-1).cpu()
        right += sum(best[n, len(h) - 1:len(h) + len(t) - 1].tolist() == t
                     for n, (h, t) in enumerate(zip(heads, tails)))
    return right / len(problems)


def skills(net, tokenizer, problems):
    return {name: right_share(net, tokenizer, some) for name, some in problems.items()}


@torch.no_grad()
def greedy(net, tokenizer, mode, prompt, most):
    """The text after the prompt, up to the token that ends it."""
    ids = asked(tokenizer, mode, prompt)
    begin = len(ids)
    device = next(net.parameters()).device
    while len(ids) < min(begin + most, SHAPE["context"]):
        ids.append(int(net(torch.tensor([ids], device=device))[0, -1].argmax()))
        if ids[-1] == files.END:
            break
    return tokenizer.decode(ids[begin:])


def say(name, shares):
    print("%-6s" % name, "  ".join("%s %.1f" % (k, 100 * v) for k, v in shares.items()), flush=True)


# ---- training -----------------------------------------------------------------------------------------------


def rate(done):
    """Of the highest learning rate, at this share of the time: up for a fiftieth, then a cosine down to nothing."""
    return done / 0.02 if done < 0.02 else 0.5 + 0.5 * math.cos(math.pi * (done - 0.02) / 0.98)


def optimiser(net, args, device):
    flat = [p for p in net.parameters() if p.ndim < 2]
    deep = [p for p in net.parameters() if p.ndim == 2]
    return torch.optim.AdamW([{"params": deep, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}],
                             lr=args.rate,
                             betas=(0.9, 0.95),
                             fused=device == "cuda")


def stepper(net, optim, data, args, device):
    """A function that does one step and gives its loss, compiled where that works."""

    def one(loss_of):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(data.batch(args.batch))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optim.step()
        optim.zero_grad(set_to_none=True)
        return loss.detach()

    if device == "cuda":
        try:
            compiled = torch.compile(net.loss)
            for group in optim.param_groups:
                group["lr"] = 0.0
            one(compiled)
            return lambda: one(compiled)
        except Exception as error:  # the compiler is a help, not a need
            print("not compiled: %s" % str(error)[:300], flush=True)
            optim.zero_grad(set_to_none=True)
    return lambda: one(net.loss)


def train(net, data, tokenizer, problems, args, device):
    optim = optimiser(net, args, device)
    step = stepper(net, optim, data, args, device)
    few = {name: some[:40] for name, some in problems.items()}
    begin = shown = time.time()
    steps, before, losses, quarter = 0, 0, [], 1
    while (now := time.time()) - begin < args.seconds:
        done = (now - begin) / args.seconds
        for group in optim.param_groups:
            group["lr"] = args.rate * rate(done)
        losses.append(step())
        steps += 1
        if steps % 10 == 0:
            data.take()
            losses[-1].item()  # waits for the device, so that the clock is right
        if now - shown > args.seconds / 30:
            loss = torch.stack(losses[-200:]).mean().item()
            if not math.isfinite(loss):
                raise SystemExit("the loss is not a number after %d steps" % steps)
            print("%5.0f s  step %6d  loss %.4f  %.2f M tokens/s  %d M tokens written" %
                  (now - begin, steps, loss, (steps - before) * args.batch * SHAPE["context"] /
                   (now - shown) / 1e6, data.filled * SHAPE["context"] / 1e6),
                  flush=True)
            shown, before, losses = now, steps, losses[-200:]
        if done > quarter / 4:
            say("%d/4" % quarter, skills(net, tokenizer, few))
            quarter += 1
    return {
        "steps": steps, "tokens": steps * args.batch * SHAPE["context"],
        "loss": torch.stack(losses[-200:]).mean().item()
    }


def write_skills(path, problems, most):
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "# Held-out problems: skill, mode (text: the prompt goes on with the answer; chat: the answer to the\n"
            "# message), prompt, answer, with tabs between. Written by scripts/train_demo.py.\n")
        for name, some in problems.items():
            for mode, prompt, answer in some[:most]:
                file.write("%s\t%s\t%s\t%s\n" % (name, mode, prompt, answer))


def write_all(net, tokenizer, problems, report, args):
    tensors = {name: sixteen_bits(array) for name, array in arrays(net).items()}
    named = files.gguf_tensors(tensors, SHAPE)
    for name, kind in (("f16", files.F16), ("q8_0", files.Q8_0)):
        data = files.gguf_bytes(named, SHAPE, tokenizer, kind)
        report[name + "_bytes"] = len(data)
        with open(os.path.join(args.out, "demo-%s.gguf" % name), "wb") as file:
            file.write(data)
    files.write_folder(os.path.join(args.out, "hf"), tensors, SHAPE, tokenizer)
    write_skills(os.path.join(args.out, "skills.txt"), problems, 40)
    with open(os.path.join(args.out, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def arguments():
    parser = argparse.ArgumentParser(description="Trains the model inside mica.")
    parser.add_argument("--out", required=True, help="folder for the files")
    parser.add_argument("--seconds", type=float, default=420, help="of training, without preparation and tests")
    parser.add_argument("--batch", type=int, default=128, help="rows of %d tokens in a step" % SHAPE["context"])
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--workers",
                        type=int,
                        default=max(1, (os.cpu_count() or 2) - 4),
                        help="processes that write text")
    parser.add_argument("--rows", type=int, default=2000000, help="most rows of text")
    parser.add_argument("--tests", type=int, default=400, help="held-out problems of each skill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="everything small: does the path work?")
    args = parser.parse_args()
    if args.smoke:
        args.seconds, args.batch, args.rows, args.tests, args.workers = min(args.seconds, 30), 4, 2000, 12, 1
    return args


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    begin = time.time()
    r = random.Random(args.seed)
    sample = (p for _ in range(4000 if args.smoke else 30000) for p in text.document(r) if isinstance(p, str))
    tokenizer = files.learn_tokenizer(sample, VOCABULARY)
    problems = {name: text.tests(random.Random(args.seed + 1), name, args.tests) for name in text.SKILLS}
    device = "cuda" if torch.cuda.device_count() else "cpu"  # does not open the GPU, so that fork is safe
    chunk = 100 if args.smoke else 1000
    data = Text(tokenizer, args.seed, args.workers, chunk, args.rows, "cpu" if device == "cpu" else "cuda")
    torch.manual_seed(args.seed)
    net = Llama().to(device)
    size = len(files.gguf_bytes(files.gguf_tensors(arrays(net), SHAPE), SHAPE, tokenizer, files.Q8_0))
    print("%d parameters, Q8_0 file %d bytes, tokenizer after %.0f s, on %s" %
          (sum(p.numel() for p in net.parameters()), size, time.time() - begin, device),
          flush=True)
    if size > LARGEST:
        raise SystemExit("the Q8_0 file would have %d bytes, more than %d" % (size, LARGEST))
    while data.filled < min(args.rows, 20 * chunk):
        data.take(wait=True)
    print("text after %.0f s" % (time.time() - begin), flush=True)
    report = train(net, data, tokenizer, problems, args, device)
    data.close()
    report["skills"] = {}
    for name, form in (("f32", net), ("f16", like(net, sixteen_bits)), ("q8_0", like(net, eight_bits))):
        report["skills"][name] = skills(form, tokenizer, problems)
        say(name, report["skills"][name])
        if name == "f16":
            report["greedy"] = [{
                "mode": mode, "prompt": p, "text": greedy(form, tokenizer, mode, p, 60 if args.smoke else 250)
            } for mode, some in (("text", PROMPTS), ("chat", QUESTIONS)) for p in some]
    write_all(net, tokenizer, problems, report, args)
    for made in report["greedy"]:
        print("[%s] %s => %s" % (made["mode"], made["prompt"], made["text"]), flush=True)
    print("\n| skill | f32 | f16 | q8_0 |\n| --- | --- | --- | --- |")  # for the card
    for name in problems:
        print("| %s | %s |" % (name, " | ".join("%.1f" % (100 * report["skills"][form][name])
                                                for form in ("f32", "f16", "q8_0"))))
    print("F16 %d bytes, Q8_0 %d bytes, %d steps, %.0f s in all" %
          (report["f16_bytes"], report["q8_0_bytes"], report["steps"], time.time() - begin))


if __name__ == "__main__":
    main()
