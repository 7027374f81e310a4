#!/usr/bin/env python3
"""Writes tests/golden/image.txt: what PyTorch gives for convolution and other ops of ops_image.h. Inputs are a formula that the test has as
well (values), so that only numbers of the case and results are kept.
A case is a line: name, how many whole numbers, these, how many results, these."""
import torch
import torch.nn.functional as F

torch.manual_seed(0)
LINES = []


def values(slot, *shape):
    """Sixteenths from -2 to 2, exact in every type."""
    count = 1
    for n in shape:
        count *= n
    i = torch.arange(count, dtype=torch.int64)
    mixed = ((i + 1) * 2654435761 + slot * 40503) % 2**32
    return (((mixed // 65536) % 65 - 32).to(torch.float64) / 16).reshape(shape)


def case(name, numbers, result):
    flat = result.reshape(-1).tolist()
    LINES.append(" ".join([name, str(len(numbers)), *map(str, numbers), str(len(flat)), *(f"{v:.9g}" for v in flat)]))


def conv(dims, batch, channels, outputs, groups, transposed, bias, size, kernel, stride, dilation, padding, more=0):
    """The last six are of each dimension; y as it is, then the gradient of the weight for dy of slot 3."""
    each = [v if isinstance(v, tuple) else (v,) * dims for v in (size, kernel, stride, dilation, padding, more)]
    x = values(0, batch, channels, *each[0])
    shape = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    weight = values(1, *shape, *each[1]).requires_grad_()
    b = values(2, outputs) if bias else None
    if transposed:
        f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
        y = f(x, weight, b, stride=each[2], padding=each[4], output_padding=each[5], groups=groups, dilation=each[3])
    else:
        f = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
        y = f(x, weight, b, stride=each[2], padding=each[4], dilation=each[3], groups=groups)
    numbers = [dims, batch, channels, outputs, groups, int(transposed), int(bias)] + [v for e in each for v in e]
    case("conv", numbers, y.detach())
    y.backward(values(3, *y.shape))
    case("conv_weight", numbers, weight.grad)


def convs():
    conv(1, 2, 3, 4, 1, False, True, 11, 3, 1, 1, 1)
    conv(1, 1, 4, 4, 4, False, False, 13, 4, 2, 2, 3)
    conv(2, 2, 4, 6, 2, False, True, (7, 9), (3, 2), (2, 1), (1, 2), (1, 2))
    conv(2, 1, 3, 20, 1, False, True, 8, 3, 1, 1, 1)
    conv(2, 1, 5, 5, 5, False, True, (6, 7), 3, 2, 1, 1)
    conv(2, 1, 8, 3, 1, False, False, 5, 1, 1, 1, 0)
    conv(3, 1, 2, 4, 2, False, True, (4, 5, 6), (2, 3, 2), (1, 2, 2), (2, 1, 1), (1, 0, 1))
    conv(1, 2, 3, 4, 1, True, True, 5, 4, 2, 1, 1, 1)
    conv(2, 1, 4, 6, 2, True, True, (4, 5), (3, 4), (2, 3), (1, 2), (1, 0), (1, 2))
    conv(2, 2, 3, 3, 3, True, False, 4, 2, 2, 1, 0)
    conv(3, 1, 2, 3, 1, True, True, (3, 2, 3), (2, 3, 3), (2, 1, 3), 1, (0, 1, 1), (1, 0, 2))


convs()
with open("tests/golden/image.txt", "w") as out:
    out.write("\n".join(LINES) + "\n")
