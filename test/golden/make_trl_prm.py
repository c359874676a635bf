"""What TRL's PRMTrainer makes of twenty rows of labelled steps, loses on them, and trains: writes trl_prm/.

    python make_trl_prm.py        # torch 2.13, transformers 5.24, trl 1.13

trl_prm/ours is what steptrain trained by the recipe of test/methods/reward/trl.test.ts; transformers reads it here.
"""
import json, pathlib, random, tempfile, warnings
import torch
from datasets import Dataset
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForTokenClassification, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config, TrainerCallback
from trl.experimental.prm import PRMConfig, PRMTrainer

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
here = pathlib.Path(__file__).resolve().parent / "trl_prm"

def rows():
    draw = random.Random(5)
    texts = ["so x = {} + {}.", "{} · {} is even (why?)", "then\n{} > {}", "We get {},{}.\n", " {}/{} ", "Hence \\boxed{{{}}} of {}).", "é{}—{}"]
    asked = ["What is {} + {}?", "Sum {} and {}.\n", "({}, {})", "Zähle {} bis {}: "]
    number = lambda: draw.randint(0, 120)
    for i in range(20):
        steps = [draw.choice(texts).format(number(), number()) for _ in range(1 + i % 5)]
        yield {"prompt": asked[i % 4].format(number(), number()), "completions": steps, "labels": [draw.random() < 0.6 for _ in steps]}
ROWS = list(rows())

def qwen_tokenizer():
    """No start token; a point and a line break after it are one token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(".", "Ċ"), ("?", "Ċ"), (")", "."), (").", "Ċ"), ("Ċ", "Ċ"), ("Ġ", "="), ("e", "n")]
    words = ["<|endoftext|>", "<pad>", *letters, *(a + b for a, b in merges)]
    raw = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<|endoftext|>", "<pad>"])
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<pad>")

def llama_tokenizer():
    """A start token, and a blank before every text that is encoded by itself."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz0123456789.+=?", "▁a", "th"]
    merges = [("▁", "a"), ("t", "h")]
    raw = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    raw.add_special_tokens(["<unk>", "<s>", "</s>"])
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>")

SHAPE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=256, initializer_range=0.15, num_labels=2)
MODELS = {"qwen2": (Qwen2Config, qwen_tokenizer), "llama": (LlamaConfig, llama_tokenizer)}
CASES = [{}, {"step_separator": "\n\n"}, {"step_separator": " <step> "}, {"train_on_last_step_only": True},
         {"max_length": 60}, {"max_completion_length": 40}, {"max_length": 70, "max_completion_length": 50, "step_separator": "ки"}]

def trainer_of(model, tokenizer, case, **more):
    args = PRMConfig(report_to=[], use_cpu=True, gradient_checkpointing=False, bf16=False, output_dir=tempfile.mkdtemp(),
                     dataloader_pin_memory=False, save_strategy="no", logging_steps=1, per_device_train_batch_size=len(ROWS), **case, **more)
    return PRMTrainer(model=model, args=args, train_dataset=Dataset.from_list(ROWS), processing_class=tokenizer)

def labelled(row):
    return [(at, label) for at, label in enumerate(row["labels"]) if label != -100]

class Losses(TrainerCallback):
    def __init__(self): self.of = []
    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs: self.of.append({"loss": logs["loss"], "grad_norm": logs["grad_norm"], "learning_rate": logs["learning_rate"]})

def measured(name):
    kind, make = MODELS[name]
    tokenizer = make()
    torch.manual_seed(3)
    config = kind(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
                  eos_token_id=tokenizer.eos_token_id, **SHAPE)
    begin = here / name
    AutoModelForTokenClassification.from_config(config).save_pretrained(begin)
    tokenizer.save_pretrained(begin)
    load = lambda of=begin: AutoModelForTokenClassification.from_pretrained(of, dtype=torch.float32, attn_implementation="eager")
    cases = []
    for case in CASES:
        trainer = trainer_of(load(), tokenizer, case)
        own = [{"input_ids": row["input_ids"], "labels": labelled(row)} for row in trainer.train_dataset]
        [batch] = list(trainer.get_train_dataloader())
        order = [own.index({"input_ids": ids[: int(mask.sum())].tolist(), "labels": labelled({"labels": labels.tolist()})})
                 for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"])]
        trainer.model.train()
        loss, outputs = trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch), return_outputs=True)
        loss.backward()
        for at, row in enumerate(order):
            own[row]["logits"] = [outputs.logits[at, place].tolist() for place, _ in own[row]["labels"]]
        gradients = {n: p.grad for n, p in trainer.model.named_parameters()}
        norms = {n: float(g.double().norm()) for n, g in gradients.items()}
        cases.append({**case, "rows": own, "loss": float(loss), "grad_norms": norms})
        if not case: save_file(gradients, here / f"{name}-gradients.safetensors")
        print(name, case, float(loss), sum(len(row["labels"]) for row in own))
    seen = Losses()
    trainer = trainer_of(load(), tokenizer, {}, num_train_epochs=6, learning_rate=3e-3, lr_scheduler_type="linear")
    trainer.add_callback(seen)
    trainer.train()
    if name == "qwen2":
        trainer.save_model(here / f"{name}-trained")
        tokenizer.save_pretrained(here / f"{name}-trained")
        for extra in (here / f"{name}-trained").glob("training_args.bin"): extra.unlink()
    model = trainer.model.eval()
    with torch.no_grad():
        scores = [model(torch.tensor([row["input_ids"]])).logits[0].softmax(-1)[[at for at, _ in labelled(row)], 1].tolist()
                  for row in trainer.train_dataset]
    print([round(each["loss"], 4) for each in seen.of])
    return {"cases": cases, "training": {"learning_rate": 3e-3, "num_train_epochs": 6, "steps": seen.of, "scores": scores}}

def logits_of_ours(rows):
    model, report = AutoModelForTokenClassification.from_pretrained(here / "ours", dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    with torch.no_grad():
        return [[model.eval()(torch.tensor([row["input_ids"]])).logits[0, at].tolist() for at, _ in row["labels"]] for row in rows]

here.mkdir(exist_ok=True)
result = {"rows": ROWS, **{name: measured(name) for name in MODELS}}
result["ours"] = logits_of_ours(result["qwen2"]["cases"][0]["rows"])
(here / "expected.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")
