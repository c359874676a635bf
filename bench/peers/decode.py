"""Greedy generation by transformers, by llama.cpp's own benchmark, or by node-llama-cpp. All of them batch: one forward a step
for all rows. Seconds of a step of all rows, without the forward over the prompts."""

import functools
import json
import time

import torch
from gemm import DTYPES
from transformers import AutoModelForCausalLM, Qwen2Config
from transformers.generation import StoppingCriteria


def bench(item, setting, seconds):
    return timings(item, setting, seconds, "step")


def timings(item, setting, seconds, which):
    """`which`: a step, or the time to the first tokens."""
    engine, _, rest = setting.partition(" ")
    dtype, *ways = rest.split(", ")
    if engine != "transformers":
        import llama  # needs gguf, which transformers' side does without

        return llama.timings(engine, item, dtype, seconds, which)
    compiled = "compiled" in ways
    model = model_of(json.dumps(item["config"]), dtype, compiled)
    generate = functools.partial(timed_generate, model, item, "static cache" in ways)
    # A static cache is as long as the whole sequence, so another length would compile again while it is timed.
    generate(item["newTokens"] if compiled else 2)
    samples, spent = [], 0.0
    while spent < seconds:
        began, *ends = generate(1 if which == "first" else item["newTokens"])
        samples.append(ends[0] - began if which == "first" else (ends[-1] - ends[0]) / (len(ends) - 1))
        spent += ends[-1] - began
    return samples


@functools.lru_cache(maxsize=1)
def model_of(config, dtype, compiled):
    config = Qwen2Config(**json.loads(config))
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype], attn_implementation="sdpa").eval()
    if compiled:
        model.forward = torch.compile(model.forward, dynamic=False)
    return model


class Clock(StoppingCriteria):
    """Notes when each token came."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **kwargs):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


@torch.inference_mode()
def timed_generate(model, item, static, new_tokens):
    ids = torch.randint(model.config.vocab_size, (item["batch"], item["prompt"]))
    clock = Clock()
    options = {"cache_implementation": "static"} if static else {}
    began = time.perf_counter()
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=0,
        stopping_criteria=[clock],
        **options,
    )
    return [began, *clock.times]
