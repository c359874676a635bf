"""What TRL's trainers are given: a model of random weights, words for its tokens, LoRA, and a clock."""

import time

import torch
from gemm import DTYPES
from peft import LoraConfig
from step import PROJECTIONS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedTokenizerFast, Qwen2Config, TrainerCallback


class Clock(TrainerCallback):
    """When steps end. The first one warms up."""

    def __init__(self):
        self.times = []

    def on_step_end(self, *_, **__):
        self.times.append(time.perf_counter())

    def steps(self):
        return [after - before for before, after in zip(self.times, self.times[1:])]


def model_and_tokenizer(item, classes=None):
    """Of a classifier of tokens where `classes` is given."""
    config = Qwen2Config(**item["config"])
    words = {f"w{i}": i for i in range(config.vocab_size - 2)}
    words |= {"<pad>": config.vocab_size - 2, "<eos>": config.vocab_size - 1}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
    if classes:
        config.num_labels, config.pad_token_id = classes, config.vocab_size - 2
        return AutoModelForTokenClassification.from_config(config, dtype=DTYPES[item["dtype"]], attn_implementation="sdpa"), tokenizer
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[item["dtype"]], attn_implementation="sdpa")
    model.config.eos_token_id = config.vocab_size - 1
    model.generation_config.eos_token_id = config.vocab_size - 1
    return model, tokenizer


def random_texts(item, count, length):
    rows = torch.randint(item["config"]["vocab_size"] - 2, (count, length))
    return [" ".join(f"w{i}" for i in row) for row in rows.tolist()]


def lora(item, task="CAUSAL_LM"):
    return LoraConfig(
        r=item["rank"], lora_alpha=2 * item["rank"], lora_dropout=0.0, target_modules=PROJECTIONS, task_type=task
    )


def settings(folder, steps):
    """Of every trainer."""
    return dict(
        output_dir=folder,
        max_steps=steps,
        save_strategy="no",
        report_to=[],
        logging_steps=1000,
        use_cpu=torch.get_default_device().type == "cpu",
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
