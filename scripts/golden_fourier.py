#!/usr/bin/env python3
"""Writes tests/golden/fourier.json: what numpy.fft gives for small transforms of every kind and norm.

usage: golden_fourier.py OUT     (needs numpy)"""
import json
import sys

import numpy as np

LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 24, 27, 31, 32, 35, 48, 60, 64]
NORMS = ["backward", "ortho", "forward"]


def pairs(z):
    return [round(float(v), 9) for v in np.stack([np.real(z), np.imag(z)], -1).reshape(-1)]


def main():
    random = np.random.default_rng(7)
    cases = {}
    for i, n in enumerate(LENGTHS):
        norm = NORMS[i % 3]
        z = np.round(random.standard_normal(n) + 1j * random.standard_normal(n), 6)
        r = np.round(random.standard_normal(n), 6)
        h = np.round(random.standard_normal(n // 2 + 1) + 1j * random.standard_normal(n // 2 + 1), 6)
        cases[f"x {n} "] = pairs(z)
        cases[f"real {n} "] = [float(v) for v in r]
        cases[f"half {n} "] = pairs(h)
        cases[f"fft {n} "] = pairs(np.fft.fft(z, norm=norm))
        cases[f"ifft {n} "] = pairs(np.fft.ifft(z, norm=norm))
        cases[f"rfft {n} "] = pairs(np.fft.rfft(r, norm=norm))
        cases[f"ihfft {n} "] = pairs(np.fft.ihfft(r, norm=norm))
        cases[f"irfft {n} "] = [float(v) for v in np.fft.irfft(h, n, norm=norm)]
        cases[f"hfft {n} "] = [float(v) for v in np.fft.hfft(h, n, norm=norm)]
    z = np.round(random.standard_normal((3, 4, 5)) + 1j * random.standard_normal((3, 4, 5)), 6)
    r = np.round(random.standard_normal((3, 4, 6)), 6)
    cases["x3 "] = pairs(z)
    cases["real3 "] = [float(v) for v in r.reshape(-1)]
    cases["fftn "] = pairs(np.fft.fftn(z))
    cases["ifft2 "] = pairs(np.fft.ifftn(z, axes=(0, 1), norm="ortho"))
    cases["rfftn "] = pairs(np.fft.rfftn(r))
    with open(sys.argv[1], "w") as out:
        out.write("{\n" + ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in cases.items()) + "\n}\n")


if __name__ == "__main__":
    main()
