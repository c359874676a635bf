"""Timing of one trial; the twin of ../ours/stopwatch.ts."""

import math
import time

import torch

BATCH_SECONDS = 0.02
MAX_PER_BATCH = 256
MIN_SAMPLES = 3
ROTATED_BYTES = 96 << 20
MAX_COPIES = 64


def stopwatch(seconds, run_once):
    """Seconds per run, one sample for each batch of runs."""
    run = 0

    def batch(count):
        nonlocal run
        began = time.perf_counter()
        for _ in range(count):
            run_once(run)
            run += 1
        if torch.get_default_device().type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    batch(1)
    count = 1
    while batch(count) < BATCH_SECONDS and count < MAX_PER_BATCH:
        count *= 2
    samples = []
    spent = 0.0
    while spent < seconds or len(samples) < MIN_SAMPLES:
        taken = batch(count)
        spent += taken
        samples.append(taken / count)
    return samples


def copies_for(size):
    """Copies of operands of `size` bytes to rotate over."""
    return min(MAX_COPIES, max(1, math.ceil(ROTATED_BYTES / size)))
