#!/usr/bin/env bash
# TRL 1.16 KTOTrainer on preference pairs gives batches of one label alone: all chosen answers, then all rejected ones.
#
# Expected: desirable and undesirable answers in a batch, as the loss weighs one against the other.
# Seen 2026-11-29 (1.13 too): pairs are unpaired into all that are chosen and then all that are rejected, and the sampler is
# sequential, so that every batch but one has a single label, and the second half of an epoch only pushes down.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 trl==1.16.0
cat >"$folder/case.py" <<'PY'
import copy, sys, tempfile
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import KTOConfig, KTOTrainer

words = ["[PAD]", "[EOS]"] + [f"w{i}" for i in range(62)]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[PAD]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]")
pairs = [{"prompt": f"w{i}", "chosen": f" w{i + 1} w3", "rejected": f" w{i + 2} w4"} for i in range(32)]
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1)
model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2))
with tempfile.TemporaryDirectory() as output:
    arguments = KTOConfig(output_dir=output, per_device_train_batch_size=8, report_to="none", use_cpu=True)
    trainer = KTOTrainer(
        model=model, ref_model=copy.deepcopy(model), args=arguments, train_dataset=Dataset.from_list(pairs),
        processing_class=tokenizer,
    )
    labels = [[bool(label) for label in batch["label"]] for batch in trainer.get_train_dataloader()]
for batch in labels:
    print("desirable" if all(batch) else "undesirable" if not any(batch) else "both", len(batch))
changed = [set(batch) for batch in labels] != [{True}] * 4 + [{False}] * 4
print(f"trl {trl.__version__}: {'changed' if changed else 'as seen: no batch has both labels'}")
sys.exit(1 if changed else 0)
PY
"$folder/venv/bin/python" "$folder/case.py" 2>/dev/null
