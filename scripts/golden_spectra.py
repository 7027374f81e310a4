#!/usr/bin/env python3
"""Writes tests/golden/spectra.txt: some of the numbers that PyTorch gives for transforms of long rows, and the log-mel spectrum of transformers'
Whisper feature extractor at small sizes. Inputs are tests/ops/golden_lines.h's.

    python3 scripts/golden_spectra.py        from the root of the tree; needs torch and transformers; runs on the CPU, in f64

A case is a line: name, how many numbers, these, how many results, these. Transforms: kind (0 complex, 1 real, 2 back), inverse, norm, length; results are every
`step`-th number, as pairs where they are complex, with `step` the last number. log_mel: window, hop, bands, samples, frames; results are the filters
[bands, window / 2 + 1], then the spectrum [bands, frames]."""
import torch
from transformers import WhisperFeatureExtractor

LINES = []
NORMS = ("backward", "ortho", "forward")


def values(slot, count):
    mixed = [((i + 1) * 2654435761 + slot * 40503 * 977) % 2**32 for i in range(count)]
    return torch.tensor([(m // 65536 % 257 - 128) / 64 for m in mixed], dtype=torch.float64)


def case(name, numbers, results):
    LINES.append(" ".join([name, str(len(numbers)), *(str(n) for n in numbers), str(len(results)), *(f"{r:.12g}" for r in results)]))


def transform(kind, inverse, norm, n):
    half = n // 2 + 1
    z = lambda count: torch.complex(values(0, count), values(1, count))
    if kind == 0:
        y = (torch.fft.ifft if inverse else torch.fft.fft)(z(n), norm=NORMS[norm])
    elif kind == 1:
        y = torch.fft.rfft(values(0, n), norm=NORMS[norm])
    else:
        y = torch.fft.irfft(z(half), n, norm=NORMS[norm])
    step = max(1, len(y) // 40)
    some = y[::step]
    case("fft", [kind, inverse, norm, n, step], (torch.view_as_real(some) if some.is_complex() else some).reshape(-1).tolist())


def log_mel(window, hop, bands, samples):
    extractor = WhisperFeatureExtractor(feature_size=bands, sampling_rate=16000, hop_length=hop, n_fft=window)
    audio = values(2, samples).numpy() / 4
    mel = extractor._np_extract_fbank_features([audio], "cpu")[0]
    case("log_mel", [window, hop, bands, samples, mel.shape[1]], extractor.mel_filters.T.reshape(-1).tolist() + mel.reshape(-1).tolist())


for i, n in enumerate((100, 127, 128, 210, 243, 256, 343, 509, 512, 625, 1000, 1009, 1024, 2047, 2187, 4096, 4097, 4999, 5040, 8191, 16384, 30030, 65536, 65537, 131072)):
    transform(0, i % 2, i % 3, n)
    transform(1, 0, (i + 1) % 3, n)
    transform(2, 1, (i + 2) % 3, n)
log_mel(32, 8, 6, 300)
log_mel(50, 20, 5, 512)
log_mel(64, 16, 8, 1000)
with open("tests/golden/spectra.txt", "w", encoding="ascii") as file:
    file.write("\n".join(LINES) + "\n")
