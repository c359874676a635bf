"""StepAMC's policy iterations with transformers and PEFT: a sequence per verdict, padded, as TRL-like trainers do it.

    python ppo.py WORK.json [--device cuda] [--adapters bf16|f32]

WORK.json is what scripts/gpu-check/work.mjs writes. Prints one JSON object: seconds of each phase of each iteration, peak
bytes, and what was computed. Policy, reference (adapter off) and reward network (a second adapter) share one base. Only
the verdict's row goes through the head, which is kinder than computing all logits. Weights and tokens are random.
"""

import argparse
import json
import sys
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("work")
arguments.add_argument("--device", default="cuda")
arguments.add_argument("--adapters", choices=["bf16", "f32"], default="bf16")
options = arguments.parse_args()

try:
    import peft
    import torch
    import transformers
except ImportError as missing:
    print(f"no rival: {sys.executable} cannot import {missing.name}")
    sys.exit(3)

with open(options.work) as file:
    work = json.load(file)

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CLIP, VALUE_CLIP, VALUE_WEIGHT, KL_WEIGHT, CONSTRAINT_WEIGHT = 0.2, 0.2, 0.1, 0.02, 0.5
DTYPE = torch.bfloat16 if work["dtype"] == "bf16" else torch.float32
torch.manual_seed(1)
torch.set_default_device(options.device)

config = transformers.Qwen2Config(**{**work["model"], "use_cache": False})
base = transformers.AutoModelForCausalLM.from_config(config, dtype=DTYPE, attn_implementation="sdpa")
lora = peft.LoraConfig(
    r=work["rank"], lora_alpha=work["alpha"], lora_dropout=0.0, target_modules=PROJECTIONS, task_type="CAUSAL_LM"
)
model = peft.get_peft_model(base, lora, adapter_name="policy", autocast_adapter_dtype=options.adapters == "f32")
model.add_adapter("reward", lora, autocast_adapter_dtype=options.adapters == "f32")
value_head = torch.nn.Linear(config.hidden_size, 1)
reward_head = torch.nn.Linear(config.hidden_size, 1, bias=False)
model.set_adapter("policy")
model.train()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad] + list(value_head.parameters())
optimizer = torch.optim.AdamW(trained, lr=5e-6, weight_decay=0.0, fused=True)

ids = [torch.randint(config.vocab_size, (length,)) for length in work["lengths"]]
words = torch.tensor(work["words"])
labels = torch.arange(len(ids)) % 2


def batches():
    """Indices in micro-batches of sequences of like length, at most so many tokens with padding."""
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found, batch = [], []
    for i in order:
        if batch and (len(batch) + 1) * len(ids[i]) > work["micro_batch_tokens"]:
            found.append(batch)
            batch = []
        batch.append(i)
    return [*found, batch]


def padded(batch, last=None):
    """Token ids and mask; `last`: what stands in the place of each verdict."""
    longest = max(len(ids[i]) for i in batch)
    tokens = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, i in enumerate(batch):
        tokens[row, : len(ids[i])] = ids[i]
        mask[row, : len(ids[i])] = 1
        if last is not None:
            tokens[row, len(ids[i]) - 1] = last
    return tokens, mask


def states(tokens, mask, before):
    """The state `before` tokens ahead of each sequence's end."""
    hidden = model.get_base_model().model(input_ids=tokens, attention_mask=mask).last_hidden_state
    rows = mask.sum(1) - 1 - before
    return hidden[torch.arange(len(rows)), rows]


def logprobs(state):
    return torch.log_softmax(model.get_base_model().lm_head(state).float(), -1)


def at(table, tokens):
    return table.gather(1, tokens[:, None]).squeeze(1)


@torch.no_grad()
def rollout(groups):
    drawn = []
    for group in groups:
        inputs = padded(group)
        state = states(*inputs, 1)
        own = logprobs(state)
        tokens = torch.multinomial(own.exp(), 1).squeeze(1)
        with model.disable_adapter():
            reference = at(logprobs(states(*inputs, 1)), tokens)
        drawn.append((inputs, tokens, at(own, tokens), reference, value_head(state.float()).squeeze(1)))
    return drawn


@torch.no_grad()
def reward(groups, drawn):
    model.set_adapter("reward")
    rewards = []
    for group, (_, tokens, *_) in zip(groups, drawn):
        scores = [reward_head(states(*padded(group, word), 0).float()).squeeze(1) for word in words]
        centred = (scores[0] - scores[1]) / 2
        rewards.append(torch.where(tokens == words[0], centred, torch.where(tokens == words[1], -centred, -1.0)))
    model.set_adapter("policy")
    return rewards


def update(groups, drawn, rewards):
    advantages = torch.cat([value - own[4] for value, own in zip(rewards, drawn)])
    mean, deviation = advantages.mean(), advantages.std() + 1e-8
    for _ in range(work["epochs"]):
        for group, (inputs, tokens, old, reference, values), returns in zip(groups, drawn, rewards):
            state = states(*inputs, 1)
            table = logprobs(state)
            own = at(table, tokens)
            advantage = (returns - values - mean) / deviation
            ratio = (own - old).exp()
            policy = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            value = value_head(state.float()).squeeze(1)
            clipped = values + (value - values).clamp(-VALUE_CLIP, VALUE_CLIP)
            value_loss = torch.max((value - returns) ** 2, (clipped - returns) ** 2) / 2
            difference = reference - own
            kl = difference.exp() - 1 - difference
            pair = torch.log_softmax(table[:, words], -1)
            constraint = -at(pair, labels[torch.tensor(group)])
            loss = policy + VALUE_WEIGHT * value_loss + KL_WEIGHT * kl + CONSTRAINT_WEIGHT * constraint
            (loss.sum() / len(ids)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def timed(run, *given):
    began = time.perf_counter()
    result = run(*given)
    if options.device != "cpu":
        torch.cuda.synchronize()
    return result, time.perf_counter() - began


groups = batches()
iterations = []
for _ in range(work["iterations"]):
    drawn, rollout_seconds = timed(rollout, groups)
    rewards, reward_seconds = timed(reward, groups, drawn)
    _, update_seconds = timed(update, groups, drawn, rewards)
    iterations.append(
        {"rollout_seconds": rollout_seconds, "reward_seconds": reward_seconds, "update_seconds": update_seconds}
    )
print(
    json.dumps(
        {
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
            "adapters": options.adapters,
            "iterations": iterations,
            "verdicts": len(ids),
            "tokens": sum(work["lengths"]),
            "padded_tokens": sum(max(len(ids[i]) for i in group) * len(group) for group in groups),
            "peak_bytes": torch.cuda.max_memory_allocated() if options.device != "cpu" else None,
        }
    )
)
