"""scaled_dot_product_attention, causal, grouped key heads natively or repeated; on a GPU by a named backend."""

import contextlib

import torch
import torch.nn.functional as F
from gemm import DTYPES
from stopwatch import stopwatch
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def bench(item, setting, seconds):
    lengths, heads, kv_heads = item["lengths"], item["heads"], item["kvHeads"]
    backward = item["direction"] == "backward"
    assert len(set(lengths)) == 1, "sequences of one length: the rival would have to pad"

    def random(count):
        return torch.randn(
            len(lengths), count, lengths[0], item["headDim"], dtype=DTYPES[item["dtype"]], requires_grad=backward
        )

    q, k, v = random(heads), random(kv_heads), random(kv_heads)
    group = heads // kv_heads

    def forward():
        if setting != "repeated keys":
            with sdpa_kernel(BACKENDS[setting]) if setting in BACKENDS else contextlib.nullcontext():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
        wide = [t.repeat_interleave(group, dim=1) for t in (k, v)]
        return F.scaled_dot_product_attention(q, *wide, is_causal=True)

    if not backward:
        with torch.inference_mode():
            return stopwatch(seconds, lambda _: forward())
    y = forward()
    dy = torch.randn_like(y)
    return stopwatch(seconds, lambda _: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
