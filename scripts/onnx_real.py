#!/usr/bin/env python3
"""Models as PyTorch exports them, and as ONNX Runtime's tools rewrite them, through mica and ONNX Runtime: prints the greatest difference of the outputs, relative to
their greatest element. Weights are random; nothing is kept.

    onnx_real.py LIBMICA [--device ID] [--only NAME] [--file MODEL.onnx]"""
import argparse
import os
import sys
import tempfile
import time
import warnings

import numpy as np
import onnx

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_nodes  # noqa: E402


def resnet(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, a, b, stride):
            super().__init__()
            self.one, self.two = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.Conv2d(b, b, 3, 1, 1, bias=False)
            self.n1, self.n2 = nn.BatchNorm2d(b), nn.BatchNorm2d(b)
            self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if stride != 1 or a != b else nn.Identity()

        def forward(self, x):
            return torch.relu(self.n2(self.two(torch.relu(self.n1(self.one(x))))) + self.short(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for a, b, stride in ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)):
        layers.append(Block(a, b, stride))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)), (torch.randn(2, 3, 96, 96),), ["x"]


def whisper(torch):
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    config = WhisperConfig(d_model=128, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=256, num_mel_bins=80, max_source_positions=200)
    model = WhisperEncoder(config)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x).last_hidden_state
    return Encoder(), (torch.randn(1, 80, 400),), ["x"]


def llama(torch):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=576, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=9, num_key_value_heads=3, vocab_size=4096,
                         tie_word_embeddings=True, attn_implementation="eager")
    model = LlamaForCausalLM(config)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits
    return Logits(), (torch.randint(0, 4096, (2, 17)),), ["ids"]


def bert(torch):
    from transformers import BertConfig, BertModel
    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, attn_implementation="eager")
    model = BertModel(config)

    class Embed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state
    mask = torch.ones(2, 23, dtype=torch.int64)
    mask[1, 15:] = 0
    return Embed(), (torch.randint(0, 30000, (2, 23)), mask), ["ids", "mask"]


def recurrent(torch):
    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(13, 21, 2, batch_first=True, bidirectional=True)
            self.gru = torch.nn.GRU(42, 17, batch_first=True)

        def forward(self, x):
            return self.gru(self.lstm(x)[0])[0]
    return Layers(), (torch.randn(3, 11, 13),), ["x"]


MODELS = {"resnet18": resnet, "whisper encoder": whisper, "llama": llama, "minilm": bert, "lstm gru": recurrent}


def feeds(session):
    """Numbers for the inputs of a file; symbols are 2, then 16."""
    sizes, result = {}, {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.setdefault(d, 2 if not sizes else 16) for d in i.shape]
        if "int" in i.type:
            result[i.name] = np.ones(shape, np.int64) if "mask" in i.name else np.random.default_rng(1).integers(0, 2 if "type" in i.name else 1000, shape)
        else:
            result[i.name] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return result


def compare(mica, name, path):
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = feeds(session)
    wanted = session.run(None, inputs)
    contrib = sorted({n.op_type for n in onnx.load(path, load_external_data=False).graph.node if n.domain == "com.microsoft"})
    names = [o.name for o in session.get_outputs()]
    start = time.time()
    try:
        got = mica.run(path, inputs, list(zip(names, wanted)), set())
    except onnx_nodes.Refused as error:
        print("%-28s refused: %s" % (name, error), flush=True)
        return
    for label, a, b in zip(names, got, wanted):
        if isinstance(a, str):
            print("%-28s %s: %s" % (name, label, a), flush=True)
        else:
            print("%-28s %-20s %-16s max relative difference %.2e   (%.2f s with importing) %s" %
                  (name, label[:20], b.shape, np.abs(a.astype(np.float64) - b).max() / np.abs(b).max(), time.time() - start, " ".join(contrib)), flush=True)


def rewrite(path, folder, name):
    """What ONNX Runtime's own tools make of a file: fused operators, few bits, 8 bits."""
    import logging
    logging.disable(logging.WARNING)
    result = []
    try:
        from onnxruntime.transformers import optimizer
        kind = {"minilm": "bert", "llama": "gpt2", "whisper encoder": "bart"}.get(name)
        if kind:
            heads = {"minilm": (12, 384), "llama": (9, 576), "whisper encoder": (4, 128)}[name]
            fused = optimizer.optimize_model(path, model_type=kind, num_heads=heads[0], hidden_size=heads[1])
            fused.save_model_to_file(os.path.join(folder, "fused.onnx"))
            result.append((name + " fused", os.path.join(folder, "fused.onnx")))
    except Exception as error:  # the tool's own limits
        print("%-28s not rewritten: %s" % (name, str(error)[:120]))
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
        target = os.path.join(folder, "dynamic.onnx")
        quantize_dynamic(path, target, weight_type=QuantType.QInt8)
        result.append((name + " 8 bits", target))
    except Exception as error:
        print("%-28s not rewritten: %s" % (name, str(error)[:120]))
    try:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
        few = MatMulNBitsQuantizer(onnx.load(path), 4, 32, is_symmetric=False)
        few.process()
        target = os.path.join(folder, "few.onnx")
        few.model.save_model_to_file(target, False)
        result.append((name + " 4 bits", target))
    except Exception as error:
        print("%-28s not rewritten: %s" % (name, str(error)[:120]))
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--file")
    options = parser.parse_args()
    mica = onnx_nodes.Mica(options.library, options.device)
    if options.file:
        return compare(mica, os.path.basename(options.file), options.file)
    import torch
    for name, make in MODELS.items():
        if options.only not in name:
            continue
        torch.manual_seed(1)
        model, inputs, names = make(torch)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            for dynamo in (True, False):
                path = os.path.join(folder, "%s.onnx" % dynamo)
                try:
                    torch.onnx.export(model.eval(), inputs, path, input_names=names, dynamo=dynamo, verbose=False)
                except Exception as error:
                    print("%-28s not exported (dynamo %s): %s" % (name, dynamo, str(error)[:150]))
                    continue
                compare(mica, name + ("" if dynamo else " (older)"), path)
                for label, other in rewrite(path, folder, name):
                    compare(mica, label + ("" if dynamo else " (older)"), other)


if __name__ == "__main__":
    sys.exit(main())
