"""A classifier of sequences that TRL's RewardTrainer trains on pairs of texts, and its scores of them: writes trl_reward/.

    python make_trl_reward.py     # torch 2.13, transformers 5.24, trl 1.13; takes the tokenizer of trl_prm/
"""
import json, pathlib, random, shutil, tempfile, warnings
import torch
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast, Qwen2Config
from trl import RewardConfig, RewardTrainer

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
here = pathlib.Path(__file__).resolve().parent
out = here / "trl_reward"
draw = random.Random(3)

def row():
    a, b, off = draw.randint(2, 60), draw.randint(2, 60), draw.choice([-10, -1, 1, 10])
    text = lambda total: f"{a} + {b} = {total}.\nThe answer is {total}."
    return {"prompt": f"How much is {a} + {b}?\n", "chosen": text(a + b), "rejected": text(a + b + off)}
ROWS = [row() for _ in range(16)]

tokenizer = PreTrainedTokenizerFast.from_pretrained(here / "trl_prm" / "qwen2")
torch.manual_seed(3)
config = Qwen2Config(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, max_position_embeddings=256, initializer_range=0.15, num_labels=1, bos_token_id=None,
                     eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
args = RewardConfig(output_dir=tempfile.mkdtemp(), max_steps=20, learning_rate=3e-3, per_device_train_batch_size=8, report_to=[],
                    use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no", disable_tqdm=True)
trainer = RewardTrainer(model=AutoModelForSequenceClassification.from_config(config), args=args, processing_class=tokenizer,
                        train_dataset=Dataset.from_list(ROWS))
trainer.train()
shutil.rmtree(out, ignore_errors=True)
trainer.save_model(out)
for extra in out.glob("training_args.bin"): extra.unlink()
model = trainer.model.eval()

def score(ids):
    with torch.no_grad(): return model(torch.tensor([ids])).logits[0, 0].item()

texts = [{"problem": r["prompt"].removesuffix("\n"), "text": r[of], "ids": d[f"{of}_ids"], "score": score(d[f"{of}_ids"])}
         for r, d in zip(ROWS, trainer.train_dataset) for of in ("chosen", "rejected")]
(out / "expected.json").write_text(json.dumps(texts) + "\n")
print(len(texts), [round(t["score"], 3) for t in texts[:6]])
