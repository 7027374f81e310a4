#!/usr/bin/env python3
"""Writes tests/golden/train.txt: what PyTorch gives for losses, optimisers over several steps, clipping by the global norm, quantisation and
fake-quantisation. Inputs are a formula that the test has as well (values), so that only the numbers of a case and its results are kept.
A case is a line: name, how many numbers, these, how many results, these.

    VENV/bin/python scripts/golden_train.py        (VENV has torch)"""
import os

import torch
import torch.nn.functional as F

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
LINES = []


def values(slot, *shape):
    """Sixty-fourths from -2 to 2."""
    count = 1
    for n in shape:
        count *= n
    i = torch.arange(count, dtype=torch.int64)
    mixed = ((i + 1) * 2654435761 + slot * 40503 * 977) % 2**32
    return (((mixed // 65536) % 257 - 128).to(torch.float64) / 64).reshape(shape)


def case(name, numbers, *results):
    flat = [v for r in results for v in r.reshape(-1).tolist()]
    LINES.append(" ".join([name, str(len(numbers)), *(f"{v:.17g}" for v in numbers), str(len(flat)), *(f"{v:.17g}" for v in flat)]))


def labels(rows, classes, ignored):
    """Row r has class 7 r % classes; every third is ignored where asked for."""
    return torch.tensor([-100 if ignored and r % 3 == 2 else 7 * r % classes for r in range(rows)])


def cross_entropy(rows, classes, smoothing, ignored):
    x = values(1, rows, classes).requires_grad_()
    reaches = values(2, rows)
    loss = F.cross_entropy(x, labels(rows, classes, ignored), reduction="none", label_smoothing=smoothing)
    loss.backward(reaches)
    case("cross_entropy", [rows, classes, smoothing, int(ignored)], loss.detach(), x.grad)


def cross_entropy_of(rows, classes, smoothing, weighted, soft):
    """Weights of classes; parts of classes instead of labels. Both need not add up to anything."""
    x = values(1, rows, classes).requires_grad_()
    reaches = values(2, rows)
    weight = values(4, classes).abs() + 0.5 if weighted else None
    of = values(5, rows, classes).abs() if soft else labels(rows, classes, False)
    loss = F.cross_entropy(x, of, weight=weight, reduction="none", label_smoothing=smoothing)
    loss.backward(reaches)
    case("cross_entropy_of", [rows, classes, smoothing, int(weighted), int(soft)], loss.detach(), x.grad)


COUNT, STEPS = 9, 6


def optimise(name, make, numbers):
    """The parameters after each step; gradients are values of the step, the learning rate falls."""
    p = torch.nn.Parameter(values(3, COUNT))
    optimiser, after = make([p]), []
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = 0.1 / (1 + step)
        p.grad = values(10 + step, COUNT)
        optimiser.step()
        after.append(p.detach().clone())
    case(name, numbers, *after)


def sgd(momentum, dampening, decay, nesterov, maximize):
    optimise("sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=momentum, dampening=dampening, weight_decay=decay, nesterov=nesterov,
                                              maximize=maximize), [momentum, dampening, decay, int(nesterov), int(maximize)])


def adam(beta1, beta2, eps, decay, decoupled, amsgrad, maximize):
    make = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimise("adam", lambda p: make(p, lr=0.1, betas=(beta1, beta2), eps=eps, weight_decay=decay, amsgrad=amsgrad, maximize=maximize),
             [beta1, beta2, eps, decay, int(decoupled), int(amsgrad), int(maximize)])


def clip(most):
    """Three gradients of 3 x 5, 7 and 2 x 2 x 3."""
    parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in ((3, 5), (7,), (2, 2, 3))]
    for slot, p in enumerate(parameters):
        p.grad = values(20 + slot, *p.shape)
    norm = torch.nn.utils.clip_grad_norm_(parameters, most)
    case("clip", [most], norm, *[p.grad for p in parameters])


def fake_quantize(rows, columns, axis, low, high):
    """x in f32, as PyTorch takes it; scales and zero points of a row or of all; then the derivative."""
    x = values(30, rows, columns).float().requires_grad_()
    reaches = values(31, rows, columns).float()
    count = rows if axis == 0 else 1
    scales = torch.tensor([0.0217 * (1 + c) for c in range(count)], dtype=torch.float32)
    points = torch.tensor([c + 1 for c in range(count)], dtype=torch.int32)
    if axis == 0:
        y = torch.fake_quantize_per_channel_affine(x, scales, points, 0, low, high)
    else:
        y = torch.fake_quantize_per_tensor_affine(x, float(scales[0]), int(points[0]), low, high)
    y.backward(reaches)
    case("fake_quantize", [rows, columns, axis, low, high], y.detach(), x.grad)


def learned(columns, low, high):
    """One scale that is learned, without a zero point: y, dx, and what reaches the scale."""
    x = values(32, columns).float().requires_grad_()
    reaches = values(33, columns).float()
    scale = torch.tensor([0.0519], requires_grad=True)
    y = torch._fake_quantize_learnable_per_tensor_affine(x, scale, torch.tensor([0.0]), low, high, 1.0)
    y.backward(reaches)
    case("learned", [columns, low, high], y.detach(), x.grad, scale.grad)


def quantize(rows, columns, axis, signed):
    x = values(34, rows, columns).float()
    dtype = torch.qint8 if signed else torch.quint8
    if axis == 0:
        scales = torch.tensor([0.0113 * (1 + c) for c in range(rows)], dtype=torch.float64)
        q = torch.quantize_per_channel(x, scales, torch.tensor([3 + c for c in range(rows)]), 0, dtype)
    else:
        q = torch.quantize_per_tensor(x, 0.0113, 3, dtype)
    case("quantize", [rows, columns, axis, int(signed)], q.int_repr().double(), q.dequantize())


for rows, classes in ((5, 11), (1, 1), (7, 40)):
    for smoothing in (0.0, 0.1):
        cross_entropy(rows, classes, smoothing, rows > 1)
for weighted, soft in ((True, False), (False, True), (True, True)):
    for smoothing in (0.0, 0.1):
        cross_entropy_of(5, 11, smoothing, weighted, soft)
sgd(0.0, 0.0, 0.0, False, False)
sgd(0.9, 0.0, 0.0, False, False)
sgd(0.9, 0.3, 0.01, False, False)
sgd(0.8, 0.0, 0.01, True, False)
sgd(0.5, 0.1, 0.1, False, True)
for decoupled in (False, True):
    adam(0.9, 0.999, 1e-8, 0.0, decoupled, False, False)
    adam(0.9, 0.999, 1e-8, 0.05, decoupled, False, False)
    adam(0.8, 0.95, 1e-3, 0.1, decoupled, True, False)
    adam(0.0, 0.99, 1e-8, 0.1, decoupled, False, True)
for most in (0.5, 1000.0):
    clip(most)
for axis in (-1, 0):
    fake_quantize(3, 17, axis, -128, 127)
    fake_quantize(3, 17, axis, 0, 15)
    quantize(3, 17, axis, True)
    quantize(3, 17, axis, False)
learned(37, -8, 7)
learned(37, -128, 127)
with open("tests/golden/train.txt", "w") as file:
    file.write("\n".join(LINES) + "\n")
