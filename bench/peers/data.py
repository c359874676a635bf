"""Rows of a file, tokenised with datasets and tokenizers into Arrow files."""

import json
import os
import shutil
import tempfile

from stopwatch import stopwatch


def bench(item, setting, seconds):
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    cores = len(os.sched_getaffinity(0))
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if setting == "a process for each core" else "true"
    tokenizer = AutoTokenizer.from_pretrained(item["tokenizer"])
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "rows.jsonl")
    write_rows(item, path)

    def encode(rows):
        texts = [f"{question}\n" + "\n".join(steps) for question, steps in zip(rows["question"], rows["steps"])]
        return {"input_ids": tokenizer(texts)["input_ids"]}

    def run(number):
        cache = os.path.join(folder, f"cache-{number}")
        rows = datasets.load_dataset("json", data_files=path, split="train", cache_dir=cache)
        rows.map(
            encode,
            batched=True,
            num_proc=cores if setting == "a process for each core" else None,
            load_from_cache_file=False,
        )

    try:
        return stopwatch(seconds, run)
    finally:
        shutil.rmtree(folder)


def write_rows(item, path):
    with open(item["file"]) as file:
        lines = [json.loads(line) for line in file if line.strip()]
    with open(path, "w") as file:
        for i in range(item["rows"]):
            row, turn = lines[i % len(lines)], i // len(lines)
            question = f"{row['question']} ({turn})" if turn else row["question"]
            labels = [(i + step) % 2 for step in range(len(row["steps"]))]
            file.write(json.dumps({"question": question, "steps": row["steps"], "labels": labels}) + "\n")
