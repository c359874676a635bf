"""PyTorch's side of the check of a GPU: a line of JSON for each case and way of doing it, as it comes.

    python3 scripts/device/rival.py CASES.json OUT.jsonl --budget SECONDS [--seconds 0.2] GROUP ...

CASES.json is what `node build/ts/bench/device.js --list` prints. The group `liger` is the fused head and the step of
PEFT with Liger's kernels; without the package one line says so. The programs that are timed are those of bench/peers.
"""

import argparse
import importlib
import json
import os
import sys
import time

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "peers")
sys.path.insert(0, PEERS)

SETTINGS = {
    "gemm": ["plain"],
    "attention": ["cuDNN", "flash"],
    "head": ["all logits", "chunks of 128 rows"],
    "kernels": ["plain"],
    "step": ["adapters in bf16"],
    "decode": ["transformers bf16", "transformers bf16, static cache"],
    "prefill": ["transformers bf16"],
}

arguments = argparse.ArgumentParser()
arguments.add_argument("cases")
arguments.add_argument("out")
arguments.add_argument("groups", nargs="+")
arguments.add_argument("--budget", type=float, default=60)
arguments.add_argument("--seconds", type=float, default=0.2)
args = arguments.parse_args()
began = time.time()
out = open(args.out, "a", buffering=1)


def note(group, item, setting, **found):
    line = {"kind": "bench", "side": "rival", "group": group, "op": item["shown"], "name": item["name"], "setting": setting}
    text = json.dumps({**line, **found}, ensure_ascii=False)
    out.write(text + "\n")
    print(text, flush=True)


def median(samples):
    return sorted(samples)[len(samples) // 2]


def measured(group, item, setting, bench):
    if time.time() - began > args.budget:
        return note(group, item, setting, error="not begun: no time left")
    try:
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        samples = bench()
        seconds = median(samples)
        found = {"ms": seconds * 1e3, "min": min(samples) * 1e3}
        if item["flops"] > 0:
            found["tflops"] = item["flops"] / seconds / 1e12
        if on_gpu:
            found["peakGB"] = torch.cuda.max_memory_allocated() / 1e9
        note(group, item, setting, **{name: float(f"{value:.5g}") for name, value in found.items()})
    except Exception as error:
        note(group, item, setting, error=f"{type(error).__name__}: {error}"[:300])


def cases_of(group):
    if group != "liger":
        return [(group, item) for item in groups[group]]
    heads = [("head", item) for item in groups["head"] if item["shown"] == "both"]
    return heads + [("step", item) for item in groups["step"]]


def absent(group, setting, error):
    for of, item in cases_of(group):
        note(of, item, setting, error=f"absent: {error}"[:300])


def liger():
    cases = cases_of("liger")
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction as Fused
        from liger_kernel.transformers import apply_liger_kernel_to_qwen2

        apply_liger_kernel_to_qwen2()
    except Exception as error:  # also of what it imports: Triton needs a driver
        return absent("liger", "Liger", error)
    for group, item in cases:
        if group == "step":
            measured(
                group,
                item,
                "Liger, adapters in bf16",
                lambda: importlib.import_module("step").bench(item, "adapters in bf16", args.seconds),
            )
        else:
            measured(group, item, "Liger", lambda: fused_head(item, Fused))


def fused_head(item, fused):
    from gemm import DTYPES
    from stopwatch import stopwatch

    rows, hidden, vocabulary, dtype = item["rows"], item["hidden"], item["vocabulary"], DTYPES[item["dtype"]]
    x = torch.randn(rows, hidden, dtype=dtype, requires_grad=True)
    weight = (torch.rand(vocabulary, hidden, dtype=dtype) * 2 - 1) * 0.035
    targets = torch.randint(vocabulary, (rows,))

    def run(_):
        loss = fused.apply(x, weight, targets)
        (loss[0] if isinstance(loss, tuple) else loss).backward()
        x.grad = None

    return stopwatch(args.seconds, run)


with open(args.cases) as file:
    groups = json.load(file)["groups"]
try:
    import torch
except Exception as error:  # an OSError where a library is missing
    for group in args.groups:
        absent(group, "Liger" if group == "liger" else "PyTorch", error)
    sys.exit()
device = os.environ.get("STEPTRAIN_BENCH_DEVICE", "cuda:0")
on_gpu = device != "cpu"
torch.set_default_device(device)
torch.manual_seed(1)

for group in args.groups:
    if group == "liger":
        liger()
        continue
    # By setting first: what takes long to begin with, such as a compiled cache, comes when the rest is known.
    suites = {item["suite"] for item in groups[group]}
    for setting in dict.fromkeys(setting for suite in suites for setting in SETTINGS[suite]):
        for item in groups[group]:
            if setting in SETTINGS[item["suite"]]:
                # Within what is measured: a package that is missing, transformers say, costs its own cases alone.
                measured(
                    group, item, setting, lambda: importlib.import_module(item["suite"]).bench(item, setting, args.seconds)
                )
