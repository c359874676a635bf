"""Writes parquet-classes/: labels as classes of `datasets`, whose names say what 0 and 1 are.

    python make_parquet_classes.py        # datasets 5.2
"""

from pathlib import Path

from datasets import ClassLabel, Dataset, Features, List, Value

OUT = Path(__file__).parent / "parquet-classes"
OUT.mkdir(exist_ok=True)
TEXT = Value("string")
ROW = {"prompt": "How much is 2 + 2?", "completions": ["2 + 2 = 4", "So it is 5."]}


def write(name, features, row):
    Dataset.from_list([row], features=Features(features)).to_parquet(OUT / f"{name}.parquet")


for name, names, labels in [("as-here", ["wrong", "right"], [1, 0]), ("contrary", ["right", "wrong"], [0, 1])]:
    classes = ClassLabel(names=names)
    write(f"steps-{name}", {"prompt": TEXT, "completions": List(TEXT), "labels": List(classes)}, {**ROW, "labels": labels})
    write(f"answer-{name}", {"prompt": TEXT, "completion": TEXT, "label": classes},
          {"prompt": ROW["prompt"], "completion": "4", "label": labels[0]})
    write(f"record-{name}", {"problem": TEXT, "steps": List({"text": TEXT, "label": classes})},
          {"problem": ROW["prompt"], "steps": [{"text": text, "label": label} for text, label in zip(ROW["completions"], labels)]})
