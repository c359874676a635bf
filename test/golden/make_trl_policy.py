"""Losses and gradients of TRL's GRPO and RLOO on the tiny qwen2 model beside this file, for given samples, advantages and old log-probs: writes
trl_policy.json.

    python make_trl_policy.py        # torch 2.13, transformers 5.18, trl 1.13
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
for case in cases: print(case)
(here / "trl_policy.json").write_text(json.dumps({"longest": LONGEST, "prompts": PROMPTS, "samples": SAMPLES, "cases": cases}, indent=1) + "\n")
