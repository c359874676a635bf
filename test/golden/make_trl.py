"""Losses and gradients of TRL's own trainers on the tiny qwen2 model beside this file: writes trl.json.

    python make_trl.py        # torch 2.13, transformers 5.18, trl 1.13
"""
import json, pathlib, sys, tempfile, warnings
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
here = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
here = here if here.is_dir() else here.parent
VOCAB = 320
words = {"<unk>": 0, "<pad>": 1, "<eos>": 2, **{f"t{i}": i for i in range(3, VOCAB)}}
raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")

generator = torch.Generator().manual_seed(7)
draw = lambda n: [int(i) for i in torch.randint(3, VOCAB, (n,), generator=generator)]
text = lambda ids: " ".join(f"t{i}" for i in ids)
PAIRS = [(draw(4), draw(5), draw(3)), (draw(6), draw(2), draw(7)), (draw(3), draw(6), draw(4))]
LABELS = [True, False, True, False]
ANSWERS = [(draw(4), draw(5)), (draw(6), draw(3)), (draw(3), draw(7)), (draw(5), draw(4))]

def load(scale=1.0):
    model = AutoModelForCausalLM.from_pretrained(here / "qwen2", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "mlp" in name: weight.mul_(scale)
    return model

def logps(model, prompt, answer):
    ids = torch.tensor([prompt + answer])
    with torch.no_grad():
        rows = model(ids).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
    return float(rows.gather(1, torch.tensor(answer)[:, None]).sum())

def measure(trainer, out, of=None):
    trainer.model.train(); trainer.model.zero_grad()
    batches = list(trainer.get_train_dataloader())
    losses = [step(trainer, trainer._prepare_inputs(batch), of or trainer.compute_loss, len(batches)) for batch in batches]
    grads = {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None}
    norm = float(torch.sqrt(sum((g.double() ** 2).sum() for g in grads.values())))
    print(out, sum(losses), norm, flush=True)
    return {"loss": sum(losses), "grad_norm": norm}

def step(trainer, inputs, of, batches):
    own = [row["prompt"] + row[side] for rows, sides in [(result["pairs"], ("chosen", "rejected")), (result["answers"], ("completion",))] for row in rows for side in sides]
    for name in [k for k in inputs if k.endswith("input_ids") and not k.startswith(("KL", "prompt"))]:
        for ids in inputs[name].tolist():
            while ids[-1] == 1: ids.pop()
            assert ids in own, (name, ids)
    loss = of(trainer.model, inputs) / batches
    loss.backward()
    return float(loss)

common = dict(report_to=[], use_cpu=True, gradient_checkpointing=False, bf16=False, fp16=False, output_dir=tempfile.mkdtemp(),
              dataloader_pin_memory=False)
END = [2]
result = {"eos": 2,
          "pairs": [{"prompt": p, "chosen": c + END, "rejected": r + END} for p, c, r in PAIRS],
          "answers": [{"prompt": p, "completion": c + END, "label": l} for (p, c), l in zip(ANSWERS, LABELS)]}
reference = load(0.5)
for row in result["pairs"]:
    row["ref_chosen"] = logps(reference, row["prompt"], row["chosen"])
    row["ref_rejected"] = logps(reference, row["prompt"], row["rejected"])
for before, row in zip(result["answers"][-1:] + result["answers"][:-1], result["answers"]):
    # TRL follows each prompt by the answer before.
    row["ref_mismatched"] = logps(reference, row["prompt"], before["completion"])
    row["ref"] = logps(reference, row["prompt"], row["completion"])
def save():
    (here / "trl.json").write_text(json.dumps(result, indent=1) + "\n")

from trl import DPOConfig, DPOTrainer
pairs = Dataset.from_list([{"prompt": text(p) + " ", "chosen": text(c), "rejected": text(r)} for p, c, r in PAIRS])
cases = []
for kind, smoothing, beta in [("sigmoid", 0, 0.1), ("sigmoid", 0, 0.3), ("ipo", 0, 0.2), ("hinge", 0, 0.5)]:
    args = DPOConfig(**common, per_device_train_batch_size=3, beta=beta, loss_type=[kind], label_smoothing=smoothing)
    trainer = DPOTrainer(model=load(), ref_model=load(0.5), args=args, train_dataset=pairs, processing_class=tokenizer)
    cases.append({"loss_type": kind, "label_smoothing": smoothing, "beta": beta, **measure(trainer, kind)})
# TRL's sigmoid ignores label_smoothing. Its "aot" smooths as conservative DPO does, and of a batch of one pair it is nothing else.
for smoothing, beta in [(0.1, 0.3), (0.3, 0.1)]:
    args = DPOConfig(**common, per_device_train_batch_size=1, beta=beta, loss_type=["aot"], label_smoothing=smoothing)
    trainer = DPOTrainer(model=load(), ref_model=load(0.5), args=args, train_dataset=pairs, processing_class=tokenizer)
    cases.append({"loss_type": "sigmoid", "label_smoothing": smoothing, "beta": beta, **measure(trainer, "smoothed")})
result["dpo"] = cases
save()
from trl import KTOConfig, KTOTrainer
answers = Dataset.from_list([{"prompt": text(p) + " ", "completion": text(c), "label": l} for (p, c), l in zip(ANSWERS, LABELS)])
cases = []
for kind, beta, good, poor in [("kto", 0.1, 1.0, 1.0), ("kto", 0.4, 1.2, 0.7), ("apo_zero_unpaired", 0.3, 1.0, 1.0)]:
    args = KTOConfig(**common, per_device_train_batch_size=4, beta=beta, loss_type=kind, desirable_weight=good, undesirable_weight=poor)
    trainer = KTOTrainer(model=load(), ref_model=load(0.5), args=args, train_dataset=answers, processing_class=tokenizer)
    case = {"loss_type": kind, "beta": beta, "desirable_weight": good, "undesirable_weight": poor, **measure(trainer, kind)}
    cases.append(case)
result["kto"] = cases
save()
from trl import SFTConfig, SFTTrainer
args = SFTConfig(**common, per_device_train_batch_size=4, completion_only_loss=True)
trainer = SFTTrainer(model=load(), args=args, train_dataset=answers.remove_columns("label"), processing_class=tokenizer)
result["sft"] = measure(trainer, "sft")
save()
from trl.experimental.cpo import CPOConfig, CPOTrainer
args = CPOConfig(**common, per_device_train_batch_size=3, beta=2.0, loss_type="simpo", simpo_gamma=0.5, cpo_alpha=0.0)
result["simpo"] = {"beta": 2.0, "simpo_gamma": 0.5, **measure(CPOTrainer(model=load(), args=args, train_dataset=pairs, processing_class=tokenizer), "simpo")}
save()
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
def likelihood_of_answers(model, inputs):
    # TRL's log-probs and odds, with the likelihood of the chosen answer in place of that of the prompt and the answer.
    chosen, rejected, *_ = trainer.concatenated_forward(model, inputs)
    return -chosen.mean() - trainer.odds_ratio_loss(chosen, rejected)[0].mean()
cases = []
for beta in [0.1, 0.5]:
    args = ORPOConfig(**common, per_device_train_batch_size=3, beta=beta)
    trainer = ORPOTrainer(model=load(), args=args, train_dataset=pairs, processing_class=tokenizer)
    cases.append({"beta": beta, "trl_loss": measure(trainer, "orpo")["loss"], **measure(trainer, "of answers", likelihood_of_answers)})
result["orpo"] = cases
save()
