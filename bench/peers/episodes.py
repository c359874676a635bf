"""TRL's loop of turns and tools, as its GRPO trainer samples, with the agent of the package and its calculator."""

import asyncio
import json
import re
import tempfile
import time
from fractions import Fraction

import torch
from trl_model import settings as common

# The agent's tokenizer reads numbers from their last digit on, by a step that transformers does not have.
NUMBER = re.compile(r"\d+")


def reversed_digits(text):
    return NUMBER.sub(lambda found: found[0][::-1], text)


# A turn is text, then calls in JSON between tags, then the token that ends it.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "\n",
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


OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "×": lambda a, b: a * b,
    "÷": lambda a, b: Fraction(a, b),
    "mod": lambda a, b: a % b,
}


def compute(expression):
    """One operation on whole numbers, exactly; the agent writes no other."""
    found = re.fullmatch(r"\s*(\d+)\s*(\+|-|×|÷|mod)\s*(\d+)\s*", reversed_digits(expression))
    if not found or (found[2] in ("÷", "mod") and int(found[3]) == 0):
        return f"cannot compute {expression}"
    return reversed_digits(str(OPERATIONS[found[2]](int(found[1]), int(found[3]))))


def bench(item, setting, seconds):
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
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

    # AutoTokenizer takes Qwen2's class for a model of that type, and with it another way to divide text than the file says.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(item["model"])
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
                # A first round warms up, and then one is timed.
                **common(folder, 2 * rounds),
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
            metrics = trainer._metrics["train"]
            timed.append((taken, sum(map(sum, found[2])), metrics["tools/call_frequency"][-1]))
            return found

        trainer._generate = generate
        trainer.train()
    # Without calls it would be another task than ours.
    calls = sum(frequency for *_, frequency in timed) / len(timed)
    if calls < 1:
        raise ValueError(f"the agent called its tool {calls} times an episode; it calls it several times")
    samples = []
    for first in range(rounds, len(timed), rounds):
        parts = timed[first : first + rounds]
        samples.append(1000 * sum(taken for taken, *_ in parts) / sum(drawn for _, drawn, _ in parts))
    return samples
