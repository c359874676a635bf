"""Scores of steps by a token classifier or two verdict words of transformers, in padded batches of solutions sorted by length."""

import torch
from gemm import DTYPES
from stopwatch import stopwatch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

STEPS = 6


def bench(item, setting, seconds):
    size = int(setting.split()[-1])
    config = AutoConfig.for_model(num_labels=2, **item["config"])
    words = item.get("words")
    auto = AutoModelForCausalLM if words else AutoModelForTokenClassification
    model = auto.from_config(config, dtype=DTYPES[item["dtype"]]).eval()
    problem = item["problem"]
    solutions = [torch.randint(config.vocab_size, (length,)) for length in sorted(item["lengths"])]
    batches = [solutions[first : first + size] for first in range(0, len(solutions), size)]

    def scores(batch):
        longest = len(batch[-1])
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, solution in enumerate(batch):
            ids[row, : len(solution)] = solution
            mask[row, : len(solution)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
        ends = [[problem + round((i + 1) * (len(own) - problem) / STEPS) - 1 for i in range(STEPS)] for own in batch]
        rows = (torch.arange(len(batch))[:, None], torch.tensor(ends))
        if words:
            # Two rows of the head alone, at the ends of the steps alone.
            states = model.model(**given).last_hidden_state[rows]
            logits = states @ model.lm_head.weight[words].T
        else:
            logits = model(**given).logits[rows]
        return logits.float().softmax(-1)[..., 1].tolist()

    with torch.inference_mode():
        return stopwatch(seconds, lambda _: [scores(batch) for batch in batches])
