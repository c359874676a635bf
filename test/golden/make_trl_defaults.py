"""Defaults of TRL's configurations, for the table "Beside TRL" of docs/methods/offline.md: writes trl_defaults.json.

    pip install torch==2.13.0 trl==1.16.0 && python test/golden/make_trl_defaults.py
"""

import dataclasses
import json
from pathlib import Path

import trl
from trl.experimental.cpo import CPOConfig
from trl.experimental.orpo import ORPOConfig

CONFIGS = {
    "solution_sft": trl.SFTConfig,
    "dpo": trl.DPOConfig,
    "kto": trl.KTOConfig,
    "orpo": ORPOConfig,
    "simpo": CPOConfig,
    "grpo": trl.GRPOConfig,
    "rloo": trl.RLOOConfig,
}
KEYS = """learning_rate lr_scheduler_type warmup_steps num_train_epochs max_steps per_device_train_batch_size
gradient_accumulation_steps weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm max_length beta
desirable_weight undesirable_weight label_smoothing simpo_gamma num_generations max_completion_length temperature
top_p top_k epsilon num_iterations""".split()


def default(field):
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


def plain(value):
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def main():
    found = {"trl": trl.__version__}
    for name, config in CONFIGS.items():
        fields = {field.name: default(field) for field in dataclasses.fields(config)}
        found[name] = {key: plain(getattr(fields[key], "value", fields[key])) for key in KEYS if key in fields}
    path = Path(__file__).with_name("trl_defaults.json")
    path.write_text(json.dumps(found, indent=2) + "\n")


main()
