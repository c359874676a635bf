#!/usr/bin/env bash
# transformers 5.24 Trainer does not divide the loss of Qwen2ForTokenClassification and Qwen2ForSequenceClassification by
# gradient_accumulation_steps: forward takes **kwargs, so that Trainer leaves the division to the model, and the model's
# loss does not read num_items_in_batch.
#
# Expected: 8 rows as one batch and as 8 batches of one row, accumulated, have one loss and one gradient, as those of
# Qwen2ForCausalLM have.
# Seen 2026-11-29: loss and norm of the gradient are gradient_accumulation_steps times as large. TRL 1.13's PRMTrainer, whose
# models are such token classifiers, learns with them. With clipping by max_grad_norm nothing but the logged loss shows it.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/case.py" <<'PY'
import sys, tempfile
import torch, transformers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification, Qwen2ForTokenClassification
from transformers import Trainer, TrainingArguments

transformers.logging.set_verbosity_error()
ROWS = 8


def step(kind, batch):
    """Loss and norm of the gradient of one optimizer step on the same 8 rows."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    model = kind(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2, num_labels=2, pad_token_id=0,
                         classifier_dropout=0.0))
    draw = torch.Generator().manual_seed(1)
    rows = []
    for i in range(ROWS):
        ids = torch.randint(1, 64, (6,), generator=draw).tolist()
        labels = {Qwen2ForCausalLM: ids, Qwen2ForTokenClassification: [i % 2] * 6}.get(kind, i % 2)
        rows.append({"input_ids": ids, "attention_mask": [1] * 6, "labels": labels})
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output, per_device_train_batch_size=batch, gradient_accumulation_steps=ROWS // batch,
            max_steps=1, learning_rate=0.0, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows)
        trainer.train()
    return next((entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry)


changed = False
for kind, seen in ((Qwen2ForCausalLM, 1), (Qwen2ForTokenClassification, ROWS), (Qwen2ForSequenceClassification, ROWS)):
    (loss, norm), (split, split_norm) = step(kind, ROWS), step(kind, 1)
    print(f"{kind.__name__}: one batch {loss:.4f}, gradient {norm:.4f}; accumulated {split:.4f}, gradient {split_norm:.4f}")
    changed = changed or any(abs(ratio / seen - 1) > 1e-2 for ratio in (split / loss, split_norm / norm))
print(f"transformers {transformers.__version__}: {'changed' if changed else 'as seen: classifiers are not divided'}")
sys.exit(1 if changed else 0)
PY
"$folder/venv/bin/python" "$folder/case.py" 2>/dev/null
