"""Cross-entropy of a frozen head, on all logits at once or chunk by chunk; f32 softmax as transformers does it."""

import torch
import torch.nn.functional as F
from gemm import DTYPES
from stopwatch import stopwatch

CHUNK = 128


def bench(item, setting, seconds):
    rows, hidden, vocabulary = item["rows"], item["hidden"], item["vocabulary"]
    dtype = DTYPES[item["dtype"]]
    backward = item["direction"] == "both"
    x = torch.randn(rows, hidden, dtype=dtype, requires_grad=backward)
    weight = (torch.rand(vocabulary, hidden, dtype=dtype) * 2 - 1) * 0.035
    targets = torch.randint(vocabulary, (rows,))
    size = rows if setting == "all logits" else CHUNK

    def chunk(begin):
        part = x[begin : begin + size]
        logits = F.linear(part, weight).float()
        losses = F.cross_entropy(logits, targets[begin : begin + size], reduction="none")
        if backward:
            torch.autograd.grad(losses.sum() / rows, x)

    def run(_):
        for begin in range(0, rows, size):
            chunk(begin)

    with torch.set_grad_enabled(backward):
        return stopwatch(seconds, run)
