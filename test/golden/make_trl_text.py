"""What TRL's SFTTrainer makes of rows with a text alone, and what it loses on them: writes trl_text/.

    python make_trl_text.py        # torch 2.13, transformers 5.18, trl 1.13
"""
import json, pathlib, tempfile, warnings
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
here = pathlib.Path(__file__).resolve().parent
TEXTS = ["2+2=4", "Sätze\nmit  Umbruch ", "asked<eos>\nanswered<eos>", " <bos>begun"]

def tokenizer_of(begins):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<bos>": 0, "<pad>": 1, "<eos>": 2, **{letter: i + 3 for i, letter in enumerate(letters)}}
    raw = Tokenizer(models.BPE(vocabulary, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<bos>", "<pad>", "<eos>"])
    if begins:
        raw.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")

def measured(name, begins):
    tokenizer = tokenizer_of(begins)
    tokenizer.backend_tokenizer.save(str(here / "trl_text" / f"{name}.json"), pretty=False)
    args = SFTConfig(report_to=[], use_cpu=True, gradient_checkpointing=False, bf16=False, fp16=False, output_dir=tempfile.mkdtemp(),
                     dataloader_pin_memory=False, per_device_train_batch_size=len(TEXTS), dataset_text_field="text")
    model = AutoModelForCausalLM.from_pretrained(here / "qwen2", dtype=torch.float32, attn_implementation="eager")
    trainer = SFTTrainer(model=model, args=args, train_dataset=Dataset.from_list([{"text": text} for text in TEXTS]), processing_class=tokenizer)
    rows = trainer.train_dataset["input_ids"]
    [batch] = list(trainer.get_train_dataloader())
    learned = [[int(token) for token in row if token != -100] for row in batch["labels"]]
    # In the order of the trainer's own; every token is a label.
    assert sorted(map(list, rows)) == sorted(learned)
    trainer.model.train()
    loss = trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch))
    loss.backward()
    norm = float(torch.sqrt(sum((p.grad.double() ** 2).sum() for p in trainer.model.parameters() if p.grad is not None)))
    return {"ids": [list(map(int, row)) for row in rows], "loss": float(loss), "grad_norm": norm}

(here / "trl_text").mkdir(exist_ok=True)
result = {"texts": TEXTS, **{name: measured(name, name == "begun") for name in ("plain", "begun")}}
(here / "trl_text" / "expected.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")
print(result["plain"]["loss"], result["begun"]["loss"])
