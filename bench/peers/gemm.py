"""torch.nn.functional.linear and its input gradient, plain or on a weight that oneDNN packed beforehand."""

import torch
import torch.nn.functional as F
from stopwatch import copies_for, stopwatch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@torch.inference_mode()
def bench(item, setting, seconds):
    m, k, n = item["m"], item["k"], item["n"]
    dtype = DTYPES[item["dtype"]]
    backward = item["op"] == "linear_dx"
    copies = copies_for((m * k + n * k + m * n) * dtype.itemsize)
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
