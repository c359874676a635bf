"""torch.nn.functional.linear and its input gradient, plain or on a weight that oneDNN packed beforehand; with LoRA as
PEFT computes it, the frozen weight without a gradient of its own."""

import torch
import torch.nn.functional as F
from stopwatch import copies_for, stopwatch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
SCALE = 2.0  # lora_alpha / r


@torch.inference_mode()
def bench(item, setting, seconds):
    m, k, n, op = item["m"], item["k"], item["n"], item["op"]
    dtype = DTYPES[item["dtype"]]
    if op == "both":
        return both(item, dtype, seconds)
    if op in ("swiglu", "qkv"):
        return fused(item, dtype, seconds)
    backward = op == "linear_dx"
    copies = copies_for(item["bytes"])
    inputs = [torch.randn(m, n if backward else k, dtype=dtype) for _ in range(copies)]
    weights = [torch.randn(n, k, dtype=dtype) for _ in range(copies)]
    if setting == "oneDNN packed":
        packed = [
            torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous() if backward else w, m) for w in weights
        ]
        del weights

        def run(i):
            torch.ops.mkldnn._linear_pointwise(inputs[i % copies], packed[i % copies], None, "none", [], "")

    elif backward:

        def run(i):
            inputs[i % copies] @ weights[i % copies]

    else:

        def run(i):
            F.linear(inputs[i % copies], weights[i % copies])

    return stopwatch(seconds, run)


def fused(item, dtype, seconds):
    """One product for all of the weights, as inference engines lay them out."""
    m, k, n, swiglu = item["m"], item["k"], item["n"], item["op"] == "swiglu"
    copies = copies_for(item["bytes"])
    xs = [torch.randn(m, k, dtype=dtype) for _ in range(copies)]
    weights = [torch.randn(2 * n if swiglu else n + 2 * item["kv"], k, dtype=dtype) * 0.035 for _ in range(copies)]

    def run(i):
        y = F.linear(xs[i % copies], weights[i % copies])
        return F.silu(y[:, :n]) * y[:, n:] if swiglu else y

    return stopwatch(seconds, run)


def both(item, dtype, seconds):
    """Forward and backward written out: what autograd would launch, without its own time. Adapters in dtype."""
    m, k, n, rank = item["m"], item["k"], item["n"], item["rank"]
    copies = copies_for(item["bytes"])
    xs = [torch.randn(m, k, dtype=dtype) for _ in range(copies)]
    dys = [torch.randn(m, n, dtype=dtype) for _ in range(copies)]
    weights = [torch.randn(n, k, dtype=dtype) for _ in range(copies)]
    a, b = torch.randn(rank, k, dtype=dtype), torch.randn(n, rank, dtype=dtype)

    def run(i):
        x, dy, w = xs[i % copies], dys[i % copies], weights[i % copies]
        y = F.linear(x, w)
        if rank == 0:
            return y, dy @ w
        u = F.linear(x, a)
        y = y + F.linear(u, b) * SCALE
        scaled = dy * SCALE
        v = scaled @ b
        return y, (dy @ w).add_(v @ a), v.t() @ x, scaled.t() @ u

    return stopwatch(seconds, run)
