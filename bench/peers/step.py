"""One LoRA training step of transformers and PEFT: forward, backward, clip, AdamW."""

import contextlib

import torch
from gemm import DTYPES
from peft import LoraConfig, get_peft_model
from stopwatch import stopwatch
from transformers import AutoConfig, AutoModelForCausalLM

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Of layers that go by the gated delta rule.
RECURRENT = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]


def bench(item, setting, seconds):
    lengths = item["lengths"]
    assert len(set(lengths)) == 1, "sequences of one length: the rival would have to pad"
    given = {**item["config"], "use_cache": False}
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    model = AutoModelForCausalLM.from_config(
        config, dtype=DTYPES[item["dtype"]], attn_implementation="sdpa"
    )
    lora = LoraConfig(
        r=item["rank"],
        lora_alpha=2 * item["rank"],
        lora_dropout=0.0,
        target_modules=PROJECTIONS + (RECURRENT if "layer_types" in item["config"] else []),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora, autocast_adapter_dtype=setting != "adapters in bf16")
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    ids = torch.randint(config.vocab_size, (len(lengths), lengths[0]))

    def run(_):
        autocast = torch.autocast(torch.get_default_device().type, torch.bfloat16) if setting == "autocast" else contextlib.nullcontext()
        with autocast:
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return stopwatch(seconds, run)
