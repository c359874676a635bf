"""Renders chat templates with transformers: python templates.py CASES OUTPUT, both JSON."""

import json
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

with open(sys.argv[1], encoding="utf-8") as file:
    asked = json.load(file)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
answers = []
for case in asked["cases"]:
    try:
        text = tokenizer.apply_chat_template(
            case["messages"],
            chat_template=asked["templates"][case["template"]],
            tools=case.get("tools"),
            add_generation_prompt=case.get("add_generation_prompt", False),
            continue_final_message=case.get("continue_final_message", False),
            tokenize=False,
            **case.get("variables", {}),
        )
        answers.append({"text": text})
    except Exception as error:  # noqa: BLE001: whatever a template raises
        answers.append({"error": f"{type(error).__name__}: {error}"[:300]})
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(answers, file)
