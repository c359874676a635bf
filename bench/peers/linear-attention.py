"""The gated delta rule as transformers computes it by torch alone, in chunks, with the norms and gates in front of it."""

import torch
import torch.nn.functional as F
from gemm import DTYPES
from stopwatch import stopwatch
from transformers.models.qwen3_5 import modeling_qwen3_5


def bench(item, setting, seconds):
    lengths, heads, size = item["lengths"], item["heads"], item["headDim"]
    backward = item["direction"] == "backward"
    assert setting == "chunks of 64" and len(set(lengths)) == 1, "sequences of one length: the rival would have to pad"
    rule = getattr(modeling_qwen3_5.torch_chunk_gated_delta_rule, "__wrapped__", modeling_qwen3_5.torch_chunk_gated_delta_rule)
    batch, length, dtype = len(lengths), lengths[0], DTYPES[item["dtype"]]

    def random(*shape):
        return torch.randn(batch, length, *shape, dtype=dtype, requires_grad=backward)

    qkv, a, b = random(3 * heads * size), random(heads), random(heads)
    a_log, dt_bias = torch.randn(heads), torch.randn(heads)

    def forward():
        query, key, value = (part.unflatten(-1, (heads, size)) for part in qkv.split(heads * size, dim=-1))
        g = -a_log.float().exp() * F.softplus(a.float() + dt_bias)
        return rule(query, key, value, g=g, beta=b.sigmoid(), use_qk_l2norm_in_kernel=True)[0]

    if not backward:
        with torch.inference_mode():
            return stopwatch(seconds, lambda _: forward())
    y = forward()
    dy = torch.randn_like(y)
    return stopwatch(seconds, lambda _: torch.autograd.grad(y, (qkv, a, b), dy, retain_graph=True))
