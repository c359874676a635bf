"""The rival's side of a trial: JSON requests on stdin, JSON replies on stdout. The twin of ../trial.ts."""

import importlib
import json
import os
import sys

# Whatever libraries print belongs to stderr; stdout carries replies only.
replies = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def peak_bytes():
    if os.environ.get("STEPTRAIN_BENCH_DEVICE", "cpu") != "cpu":
        import torch

        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def answer(request):
    try:
        import torch

        torch.set_num_threads(int(os.environ.get("STEPTRAIN_THREADS") or len(os.sched_getaffinity(0))))
        torch.set_default_device(os.environ.get("STEPTRAIN_BENCH_DEVICE", "cpu"))
        torch.manual_seed(1)
        item = request["item"]
        samples = importlib.import_module(item["suite"]).bench(item, request["setting"], request["seconds"])
        return {"samples": samples, "peakBytes": peak_bytes()}
    except Exception as error:  # the table shows the sentence, the other cases go on
        return {"error": f"{type(error).__name__}: {error}"}


for line in sys.stdin:
    replies.write(json.dumps(answer(json.loads(line))) + "\n")
