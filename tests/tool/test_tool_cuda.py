#!/usr/bin/env python3
"""Which kernels `mica bench` names for CUDA: over the stand-in of NVIDIA's libraries, which says that it is a Hopper and
computes nothing, so that names are all there is to see.

    test_tool_cuda.py BUILD

Skipped where the build has no stand-in (no tests of tests/cuda)."""
import json
import os
import tempfile
import unittest

from test_tool import BUILD, Base

STAND_IN = os.path.abspath(os.path.join(BUILD, "fake_cuda"))


@unittest.skipUnless(os.path.exists(os.path.join(STAND_IN, "libcuda.so.1")), "there is no stand-in")
class Kernels(Base):
    def bench(self, debug, *words):
        with tempfile.TemporaryDirectory() as cache:
            more = dict(os.environ, LD_LIBRARY_PATH=STAND_IN, MICA_CACHE_DIR=cache, MICA_DEBUG=debug)
            return json.loads(self.works("bench", *words, "--device", "cuda:0", "--json", env=more))

    def test_ops(self):
        facts = self.bench("", "ops", "--op", "matmul", "--type", "q6_k")
        self.assertEqual(facts["name"], "stand-in 0")
        self.assertEqual({row["shape"]: row["kernels"] for row in facts["ops"]},
                         {"1 x 8192 x 2048": "stream/matvec", "1 x 28672 x 4096": "stream/matvec",
                          "1 x 4096 x 14336": "stream/matvec", "128 x 2048 x 2048": "tiles/pack_x, direct"})

    def test_profile(self):
        """The kernels of a prompt and of a step, with ours for this device and without."""
        words = ("-m", os.path.join("models", "demo.gguf"), "-p", "16", "-n", "2", "-r", "1", "--profile")
        prompt, step = ({kernel["kernel"] for kernel in row["kernels"]} for row in self.bench("", *words))
        self.assertTrue({"direct", "tiles/pack_x", "attention_prefill", "stream/matvec"} <= prompt, prompt)
        self.assertEqual(step, {"stream/matvec", "attention_decode", "embedding/gather", "sample"})
        prompt, step = ({kernel["kernel"] for kernel in row["kernels"]} for row in self.bench("nonative", *words))
        self.assertTrue({"matmul/tile", "attention/part", "matvec/one"} <= prompt, prompt)
        self.assertTrue({"matvec/one", "attention/part"} <= step, step)


if __name__ == "__main__":
    unittest.main()
