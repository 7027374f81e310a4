#!/usr/bin/env python3
"""Writes tests/golden/linear.json: what numpy.linalg gives for a few small matrices.

usage: golden_linear.py OUT     (needs numpy)"""
import json
import sys

import numpy as np


def main():
    random = np.random.default_rng(11)
    a = np.round(random.standard_normal((3, 5, 5)) + 2 * np.eye(5), 6)
    b = np.round(random.standard_normal((3, 5, 2)), 6)
    definite = np.round(a @ a.transpose(0, 2, 1) + np.eye(5), 6)
    tall = np.round(random.standard_normal((6, 4)), 6)
    sign, log = np.linalg.slogdet(a)
    q, r = np.linalg.qr(tall)
    signs = np.sign(np.diag(r))
    cases = {
        "a": a, "b": b, "definite": definite, "tall": tall,
        "solve": np.linalg.solve(a, b),
        "inverse": np.linalg.inv(a),
        "determinant": np.linalg.det(a),
        "slogdet": np.stack([sign, log], -1),
        "cholesky": np.linalg.cholesky(definite),
        "triangular": np.linalg.solve(np.triu(definite).transpose(0, 2, 1), b),
        "eigenvalues": np.linalg.eigvalsh(definite),
        "q": q * signs, "r": signs[:, None] * r,
        "singular values": np.linalg.svd(tall, compute_uv=False),
    }
    with open(sys.argv[1], "w") as out:
        out.write("{\n" + ",\n".join(
            f'"{key}": {json.dumps([float(f"{v:.14g}") for v in value.reshape(-1)])}' for key, value in cases.items()) + "\n}\n")


if __name__ == "__main__":
    main()
