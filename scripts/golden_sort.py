#!/usr/bin/env python3
"""Writes tests/golden/sort.txt: what numpy gives for order, running sums, padding and picking, and PyTorch for running products and extremes with NaN.
Inputs are a formula that the test has as well (values), so that only results are kept. A case is a line: name, how many results, these."""
import numpy as np
import torch

SHAPE = (4, 6, 7)
LINES = []


def values(slot, *shape):
    """Halves from -8 to 8: sums of them are exact, and there are many equals. One in 11 of slot 1 is NaN."""
    i = np.arange(np.prod(shape), dtype=np.uint64)
    mixed = ((i + 1) * 2654435761 + slot * 40503) % 2**32
    result = ((mixed // 65536) % 33).astype(np.float64) / 2 - 8
    if slot == 1:
        result[i % 11 == 3] = np.nan
    return result.reshape(shape)


def indices(slot, below, *shape):
    i = np.arange(np.prod(shape), dtype=np.uint64)
    return ((((i + 1) * 2654435761 + slot * 40503) % 2**32) // 65536 % below).astype(np.int64).reshape(shape)


def case(name, result):
    flat = np.asarray(result, dtype=np.float64).reshape(-1)
    LINES.append(" ".join([name, str(flat.size), *(f"{v:.9g}" for v in flat)]))


x, holes = values(0, *SHAPE), values(1, *SHAPE)
case("sort", np.sort(holes, axis=-1, kind="stable"))
case("argsort", np.argsort(x, axis=-1, kind="stable"))
case("argsort_descending", np.argsort(-x, axis=-1, kind="stable"))
case("top_3", np.take_along_axis(x, np.argsort(-x, axis=-1, kind="stable")[..., :3], -1))
case("cumsum", np.cumsum(x, -1))
case("cumsum_reverse", np.flip(np.cumsum(np.flip(x, -1), -1), -1))
case("cumsum_exclusive", np.cumsum(x, -1) - x)
case("cumprod", torch.cumprod(torch.from_numpy(x), -1).numpy())
case("cummax", torch.cummax(torch.from_numpy(holes), -1).values.numpy())
case("cummin", torch.cummin(torch.from_numpy(holes), -1).values.numpy())
case("argmax", np.argmax(x, -1))
case("argmin", np.argmin(x, -1))
for mode in "constant", "edge", "reflect", "symmetric", "wrap":
    case("pad_" + mode, np.pad(x, ((1, 2), (3, 0), (2, 4)), mode=mode))
case("roll", np.roll(x, -2, 1))
case("flip", np.flip(x, (0, 2)))
case("tile", np.tile(x, (2, 1, 3)))
case("gather", np.take_along_axis(x, indices(2, SHAPE[1], 4, 5, 7), 1))
picked = indices(3, SHAPE[1], 4, 9, 7)
for name, at in ("add", np.add), ("multiply", np.multiply), ("maximum", np.maximum), ("minimum", np.minimum):
    y = x.copy()
    at.at(y, (np.arange(4)[:, None, None], picked, np.arange(7)[None, None, :]), values(4, 4, 9, 7))
    case("scatter_" + name, y)
places = indices(5, 4, 3, 5, 2)  # the first two dimensions of x
case("gather_nd", x[places[..., 0], places[..., 1]])
batched = indices(6, 6, 4, 3, 1)
case("gather_nd_batch", np.stack([x[b][batched[b, :, 0]] for b in range(4)]))
for name, at in ("set", None), ("add", np.add), ("multiply", np.multiply), ("maximum", np.maximum), ("minimum", np.minimum):
    y, updates = x.copy(), values(7, 3, 5, 7)
    if at is None:
        for row in np.ndindex(3, 5):
            y[tuple(places[row])] = updates[row]
    else:
        at.at(y, (places[..., 0], places[..., 1]), updates)
    case("scatter_nd_" + name, y)
sparse = np.where(np.abs(x) < 3, 0, x)
case("nonzero", np.stack(np.nonzero(sparse), -1))
case("compress", np.compress(sparse[0, :, 0] != 0, x, axis=1))
case("compress_flat", np.compress(sparse.reshape(-1) != 0, x))
with open("tests/golden/sort.txt", "w", encoding="ascii") as file:
    file.write("\n".join(LINES) + "\n")
