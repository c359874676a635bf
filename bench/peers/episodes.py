"""TRL's loop of turns and tools, as its GRPO trainer samples, with the agent of the package and its calculator."""

import asyncio
import json
import re
import tempfile
import time

import torch
from trl_model import settings as common

# The agent's tokenizer reads numbers from their last digit on, by a step that transformers does not have.
NUMBER = re.compile(r"\d+")


def reversed_digits(text):
    return NUMBER.sub(lambda found: found[0][::-1], text)


# A turn is text, then calls in JSON between tags, then the token that ends it.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|eos\|>\s*", "content": "text"},
    },
}


def compute(expression):
    """Both sides of one operation, exactly; all that the agent writes."""
    found = re.fullmatch(r"\s*(-?\d+)\s*(\+|-|\*|/|mod)\s*(-?\d+)\s*", reversed_digits(expression))
    if not found:
        return f"cannot compute {expression}"
    left, sign, right = int(found[1]), found[2], int(found[3])
    if sign in ("/", "mod") and right == 0:
        return f"cannot compute {expression}"
    value = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left // right,
        "mod": lambda: left % right,
    }[sign]()
    return reversed_digits(str(value))


def bench(item, setting, seconds):
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    async def calculator(expression: str) -> str:
        """
        Computes.

        Args:
            expression: two numbers and a sign.
        """
        if item["latency"]:
            await asyncio.sleep(item["latency"] / 1000)
        return compute(expression)

    tokenizer = AutoTokenizer.from_pretrained(item["model"])
    tokenizer.response_template = RESPONSE
    tokenizer.chat_template = tokenizer.chat_template.replace("message['content']", "message['content'] or ''")
    model = AutoModelForCausalLM.from_pretrained(item["model"], dtype=torch.float32, attn_implementation="sdpa")
    with open(item["file"]) as file:
        problems = [json.loads(line)["problem"] for line in file]
    generations = item["generations"]
    rows = len(problems) * generations if setting == "TRL, all rows together" else item["rows"]
    prompts = [{"prompt": [{"role": "user", "content": reversed_digits(text)}]} for text in problems]
    rounds = len(problems) * generations // rows
    timed = []

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            args=GRPOConfig(
                # A first round warms up, and then three are timed.
                **common(folder, 4 * rounds),
                per_device_train_batch_size=rows,
                num_generations=generations,
                max_completion_length=item["maxLength"],
                generation_kwargs={"max_new_tokens": item["newTokens"]},
                max_tool_calling_iterations=7,
                beta=0.0,
                learning_rate=1e-12,
            ),
            reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
            train_dataset=Dataset.from_list(prompts),
            processing_class=tokenizer,
            tools=[calculator],
        )
        own = trainer._generate

        def generate(*given):
            began = time.perf_counter()
            found = own(*given)
            taken = time.perf_counter() - began
            timed.append((taken, sum(sum(mask) for mask in found[2]), trainer._metrics["train"]["tools/call_frequency"][-1]))
            return found

        trainer._generate = generate
        trainer.train()
    calls = sum(frequency for *_, frequency in timed) / len(timed)
    if calls < 1:
        raise ValueError(f"the agent called its tool {calls} times an episode; it calls it several times")
    samples = []
    for first in range(rounds, len(timed), rounds):
        parts = timed[first : first + rounds]
        samples.append(1000 * sum(taken for taken, *_ in parts) / sum(drawn for _, drawn, _ in parts))
    return samples
