"""Losses and gradients of TRL's GRPO and RLOO on the tiny qwen2 model beside this file, for given samples, advantages and old log-probs; its
corrections of a sampler's log-probs, and its advantages of several rewards: writes trl_policy.json.

    python make_trl_policy.py        # torch 2.13, transformers 5.24, trl 1.16
"""
import json, math, pathlib, tempfile, warnings
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
here = pathlib.Path(__file__).resolve().parent
VOCAB, PAD, LONGEST = 320, 1, 8
words = {"<unk>": 0, "<pad>": PAD, "<eos>": 2, **{f"t{i}": i for i in range(3, VOCAB)}}
raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")

generator = torch.Generator().manual_seed(11)
draw = lambda n: [int(i) for i in torch.randint(3, VOCAB, (n,), generator=generator)]
# Prompts of one length, so that nothing depends on how they are padded.
PROMPTS = [draw(4), draw(4)]
SAMPLES = [{"prompt": p, "tokens": draw(n)} for p, n in [(0, 5), (0, 3), (1, 6), (1, 2)]]
ADVANTAGES = [0.9, -0.9, 1.3, -0.4]

def load(scale=1.0):
    model = AutoModelForCausalLM.from_pretrained(here / "qwen2", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "mlp" in name: weight.mul_(scale)
    return model

def logprobs(model, prompt, tokens):
    with torch.no_grad():
        rows = model(torch.tensor([prompt + tokens])).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
    return rows.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()

policy, reference = load(), load(0.5)
for i, sample in enumerate(SAMPLES):
    prompt, tokens = PROMPTS[sample["prompt"]], sample["tokens"]
    # Old log-probs so far from those of the policy that ratios are clipped on both sides, of tokens and of samples.
    sample["old"] = [value + 0.3 * math.sin(3 * i + t) for t, value in enumerate(logprobs(policy, prompt, tokens))]
    sample["ref"] = logprobs(reference, prompt, tokens)
    sample["advantage"] = ADVANTAGES[i]

def padded(rows, value):
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])

mask = padded([[1] * len(s["tokens"]) for s in SAMPLES], 0)
old = padded([s["old"] for s in SAMPLES], 0.0)
inputs = {
    "prompt_ids": torch.tensor([PROMPTS[s["prompt"]] for s in SAMPLES]),
    "prompt_mask": torch.ones(len(SAMPLES), 4, dtype=torch.long),
    "completion_ids": padded([s["tokens"] for s in SAMPLES], PAD),
    "completion_mask": mask,
    "advantages": torch.tensor(ADVANTAGES),
    "old_per_token_logps": old,
    "old_logps": (old * mask).sum(1),
    "ref_per_token_logps": padded([s["ref"] for s in SAMPLES], 0.0),
    "num_items_in_batch": mask.sum(),
}
rows = Dataset.from_list([{"prompt": "t3"}] * 4)
common = dict(report_to=[], use_cpu=True, gradient_checkpointing=False, bf16=False, fp16=False, output_dir=tempfile.mkdtemp(),
              dataloader_pin_memory=False, num_generations=2, per_device_train_batch_size=4, max_completion_length=LONGEST,
              steps_per_generation=1, temperature=1.0)

def measure(trainer):
    trainer.model.train(); trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in trainer.model.parameters() if p.grad is not None))
    return {"loss": float(loss.detach()), "grad_norm": norm}

def trainer(kind, config, **settings):
    return kind(model=load(), reward_funcs=[lambda completions, **_: [0.0] * len(completions)], processing_class=tokenizer,
                args=config(**common, **settings), train_dataset=rows)

cases = []
# TRL's KL penalty is weighted by the ratio unless it is told not to.
plain = dict(use_bias_correction_kl=False)
for loss_type, beta in [("grpo", 0.0), ("grpo", 0.1), ("dapo", 0.0), ("dapo", 0.1), ("dr_grpo", 0.0), ("dr_grpo", 0.1)]:
    settings = dict(loss_type=loss_type, beta=beta, epsilon=0.2, epsilon_high=0.28)
    cases.append({"algorithm": "grpo", **settings, **measure(trainer(GRPOTrainer, GRPOConfig, **plain, **settings))})
settings = dict(loss_type="grpo", beta=0.0, epsilon=0.05, epsilon_high=0.08)
cases.append({"algorithm": "gspo", **settings, **measure(trainer(GRPOTrainer, GRPOConfig, importance_sampling_level="sequence", **settings))})
settings = dict(beta=0.0, epsilon=0.1, epsilon_high=0.1)
cases.append({"algorithm": "rloo", **settings, **measure(trainer(RLOOTrainer, RLOOConfig, **settings))})
for loss_type, more in [("cispo", dict(epsilon_high=1.1)), ("sapo", {}), ("sapo", dict(sapo_temperature_pos=2.0, sapo_temperature_neg=3.0))]:
    for beta in (0.0, 0.1):
        settings = dict(loss_type=loss_type, beta=beta, **more)
        cases.append({"algorithm": loss_type, "epsilon": 0.2, "epsilon_high": 0.2, **settings, **measure(trainer(GRPOTrainer, GRPOConfig, **plain, **settings))})

# A sampler whose log-probs differ: TRL's own path from its samples to the loss, which is told what "vLLM" drew. The policy that was sampled
# is another than the one that learns, so that ratios to it are not 1.
before = load(0.9)
for i, sample in enumerate(SAMPLES):
    own = logprobs(before, PROMPTS[sample["prompt"]], sample["tokens"])
    sample["before"] = own
    sample["sampler"] = [value - (0.6, -0.2, 0.05, -0.4)[i] + 0.9 * math.cos(2 * i + 3 * t) for t, value in enumerate(own)]

def drawn(kind, weights, rewards, **settings):
    one = kind(model=load(0.9), processing_class=tokenizer, args=GRPOConfig(**{**common, **settings}), train_dataset=rows,
               reward_funcs=[lambda completions, k=k, **_: [row[k] for row in rewards] for k in range(len(rewards[0]))])
    one.reward_weights = torch.tensor(weights)
    one.use_vllm = True
    samples = SAMPLES * (len(rewards) // len(SAMPLES))
    one._generate = lambda prompts: ([PROMPTS[s["prompt"]] for s in samples], [s["tokens"] for s in samples], None, ["" for s in samples],
                                     [s["sampler"] for s in samples], {}, None, None)
    one.current_gradient_accumulation_steps = 1
    one.model.train()
    return one, one._generate_and_score_completions([{"prompt": "t3"}] * len(rewards))

def corrected(algorithm, mode, low, high, **settings):
    one, given = drawn(GRPOTrainer, [1.0], [[0.0]] * 4, vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_min=low,
                       vllm_importance_sampling_clip_max=high, **plain, **settings)
    one.model.load_state_dict(load().state_dict())
    given.update(advantages=inputs["advantages"], ref_per_token_logps=inputs["ref_per_token_logps"], num_items_in_batch=inputs["num_items_in_batch"])
    one.model.zero_grad()
    loss = one.compute_loss(one.model, given); loss.backward()
    norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in one.model.parameters() if p.grad is not None))
    logged = {name.split("/", 1)[1]: values[-1] for name, values in one._metrics["train"].items() if name.startswith("sampling/")}
    return {"algorithm": algorithm, "importance": {"mode": mode, "clip_min": low or 0, "clip_max": high or 0, "logged": logged},
            "loss": float(loss.detach()), "grad_norm": norm}

for mode, low, high in [("sequence_mask", None, 3.0), ("sequence_truncate", None, 3.0), ("token_mask", None, 1.5), ("token_truncate", None, 1.5),
                        ("token_truncate", 0.8, None), ("sequence_mask", 0.9, None)]:
    settings = dict(loss_type="dapo", beta=0.1, epsilon=0.02, epsilon_high=0.03)
    cases.append({**settings, **corrected("grpo", mode, low, high, **settings)})
settings = dict(loss_type="grpo", beta=0.0, epsilon=0.005, epsilon_high=0.008)
cases.append({**settings, **corrected("gspo", "token_truncate", None, 1.5, importance_sampling_level="sequence", **settings)})
settings = dict(loss_type="cispo", beta=0.1, epsilon_high=1.02)
cases.append({"epsilon": 0.2, **settings, **corrected("cispo", "token_truncate", None, 1.5, **settings)})

# The second group has equal rewards of the first kind.
rewards = [[1.0, -0.3], [0.0, 0.1], [0.0, 0.2], [1.0, -0.9], [1.0, 0.7], [1.0, -0.9], [1.0, 0.4], [1.0, 0.0]]
WEIGHTS = [1.0, 0.5]
advantages = {how: drawn(GRPOTrainer, WEIGHTS, rewards, multi_objective_aggregation=how, num_generations=4,
                    per_device_train_batch_size=8)[1]["advantages"].tolist()
              for how in ("sum_then_normalize", "normalize_then_sum")}
for case in cases: print(case)
print(advantages)
made = {"longest": LONGEST, "prompts": PROMPTS, "samples": SAMPLES, "cases": cases, "several": {"rewards": rewards, "weights": WEIGHTS, "advantages": advantages}}
(here / "trl_policy.json").write_text(json.dumps(made, indent=1) + "\n")
