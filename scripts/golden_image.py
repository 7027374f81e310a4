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


def back(numbers, x, y, name="pool_back", *more):
    """What reaches x for dy of slot 3."""
    y.backward(values(3, *y.shape))
    case(name, numbers, torch.cat([v.grad.reshape(-1) for v in (x, *more)]))


def pool(kind, dims, size, kernel, stride, dilation, padding, ceil_mode, count):
    """kind 0 max, 2 mean. x [2, 3, ..]; of max y, then the places, as another case."""
    x = values(0, 2, 3, *size).requires_grad_()
    numbers = [kind, dims, *size, *kernel, *stride, *dilation, *padding, int(ceil_mode), int(count)]
    if kind == 0:
        f = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
        y, places = f(x, kernel, stride, padding, dilation, ceil_mode=ceil_mode, return_indices=True)
        case("pool", numbers, y.detach())
        case("pool_places", numbers, places.double())
        back(numbers, x, y)
    else:
        f = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
        y = f(x, kernel, stride, padding, ceil_mode=ceil_mode, count_include_pad=count)
        case("pool", numbers, y.detach())
        back(numbers, x, y)


def pools():
    pool(0, 1, (13,), (3,), (2,), (1,), (1,), False, True)
    pool(0, 2, (7, 9), (3, 2), (2, 2), (1, 2), (1, 1), True, True)
    pool(0, 3, (5, 4, 6), (2, 3, 2), (2, 1, 2), (1, 1, 1), (1, 1, 0), False, True)
    pool(2, 1, (12,), (4,), (3,), (1,), (2,), True, True)
    pool(2, 2, (7, 8), (3, 3), (2, 2), (1, 1), (1, 1), True, False)
    pool(2, 2, (7, 8), (3, 3), (2, 2), (1, 1), (1, 1), True, True)
    pool(2, 3, (4, 5, 6), (2, 2, 3), (2, 1, 2), (1, 1, 1), (1, 0, 1), False, False)


def unfold(size, kernel, stride, dilation, padding):
    """x [2, 3, ..] to columns, and columns of slot 1 back."""
    numbers = [*size, *kernel, *stride, *dilation, *padding]
    columns = F.unfold(values(0, 2, 3, *size), kernel, dilation, padding, stride)
    case("im2col", numbers, columns)
    case("col2im", numbers, F.fold(values(1, *columns.shape), size, kernel, dilation, padding, stride))


def resizes():
    """x [1, 2, ..]; mode, corners, antialias, dims, sizes."""
    kinds = [(0, 2, 0, "nearest", None), (0, 0, 0, "nearest-exact", None), (1, 0, 0, "linear", False), (1, 1, 0, "linear", True),
             (2, 0, 0, "cubic", False), (2, 1, 0, "cubic", True), (1, 0, 1, "linear", False), (2, 0, 1, "cubic", False)]
    sizes = [((9,), (4,)), ((5,), (13,)), ((6, 7), (9, 4)), ((8, 5), (3, 12)), ((4, 3, 5), (3, 7, 6))]
    for (mode, corners, antialias, name, align), (size, out) in ((k, s) for k in kinds for s in sizes):
        dims = len(size)
        if (name == "cubic" or antialias) and dims != 2:
            continue
        full = name if mode == 0 else {"linear": ("linear", "bilinear", "trilinear")[dims - 1], "cubic": "bicubic"}[name]
        x = values(0, 1, 2, *size).requires_grad_()
        y = F.interpolate(x, out, mode=full, align_corners=align, antialias=bool(antialias))
        case("resize", [mode, corners, antialias, dims, *size, *out], y.detach())
        back([mode, corners, antialias, dims, *size, *out], x, y, "resize_back")


def grids():
    """x [2, 2, 5, 6], grid [2, 3, 4, 2] of values a little smaller than slot 1's: some outside."""
    for mode, name in enumerate(("nearest", "bilinear", "bicubic")):
        for padding, pad in enumerate(("zeros", "border", "reflection")):
            for align in (0, 1):
                x, grid = values(0, 2, 2, 5, 6).requires_grad_(), (values(1, 2, 3, 4, 2) * 0.71875 + 0.015625).requires_grad_()
                y = F.grid_sample(x, grid, name, pad, bool(align))
                case("grid_sample", [mode, padding, align], y.detach())
                back([mode, padding, align], x, y, "grid_back", grid)


convs()
pools()
unfold((6, 7), (3, 2), (2, 1), (1, 2), (1, 1))
unfold((5, 5), (2, 2), (2, 2), (1, 1), (0, 0))
resizes()
grids()
with open("tests/golden/image.txt", "w") as out:
    out.write("\n".join(LINES) + "\n")
