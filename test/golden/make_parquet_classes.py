"""Writes parquet-classes/: labels as classes of `datasets`, whose names say what 0 and 1 are.

    python make_parquet_classes.py        # datasets 5.2
    python make_parquet_classes.py old    # datasets 2.21: lists of objects in another form
"""

import sys
from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Sequence, Value

OUT = Path(__file__).parent / "parquet-classes"
OUT.mkdir(exist_ok=True)
TEXT = Value("string")
ROW = {"prompt": "How much is 2 + 2?", "completions": ["2 + 2 = 4", "So it is 5."]}


def write(name, features, row):
    Dataset.from_list([row], features=Features(features)).to_parquet(OUT / f"{name}.parquet")


if sys.argv[1:] == ["old"]:
    classes = ClassLabel(names=["right", "wrong"])
    steps = [{"text": text, "label": label} for text, label in zip(ROW["completions"], [0, 1])]
    write("record-contrary-old", {"problem": TEXT, "steps": [{"text": TEXT, "label": classes}]},
          {"problem": ROW["prompt"], "steps": steps})
    sys.exit()

for name, names, labels in [("as-here", ["wrong", "right"], [1, 0]), ("contrary", ["right", "wrong"], [0, 1])]:
    classes = ClassLabel(names=names)
    write(f"steps-{name}", {"prompt": TEXT, "completions": Sequence(TEXT), "labels": Sequence(classes)}, {**ROW, "labels": labels})
    write(f"answer-{name}", {"prompt": TEXT, "completion": TEXT, "label": classes},
          {"prompt": ROW["prompt"], "completion": "4", "label": labels[0]})
    write(f"record-{name}", {"problem": TEXT, "steps": [{"text": TEXT, "label": classes}]},
          {"problem": ROW["prompt"], "steps": [{"text": text, "label": label} for text, label in zip(ROW["completions"], labels)]})

# Of more classes, or of numbers, the name alone says what one is: a column that `class_encode_column` encoded, say.
three = ClassLabel(names=["correct", "incorrect", "neutral"])
write("steps-three", {"prompt": TEXT, "completions": Sequence(TEXT), "labels": Sequence(three)}, {**ROW, "labels": [0, 1]})
swapped = ClassLabel(names=["1", "0"])
write("steps-swapped", {"prompt": TEXT, "completions": Sequence(TEXT), "labels": Sequence(swapped)}, {**ROW, "labels": [0, 1]})
scores = ClassLabel(names=["0.25", "1.0"])
write("steps-scores", {"prompt": TEXT, "completions": Sequence(TEXT), "labels": Sequence(scores)}, {**ROW, "labels": [0, 1]})
first = ClassLabel(names=["-1", "0", "1"])
for name, label in [("encoded", 0), ("encoded-missing", -1)]:
    write(f"processbench-{name}", {"problem": TEXT, "steps": Sequence(TEXT), "label": first},
          {"problem": ROW["prompt"], "steps": ROW["completions"], "label": label})
write("answer-of-four", {"question": TEXT, "answer": ClassLabel(names=["A", "B", "C", "D"])}, {"question": "Which?", "answer": 2})
write("answer-of-two", {"question": TEXT, "answer": ClassLabel(names=["no", "yes"])}, {"question": "Is it?", "answer": 1})
