"""Rows with lists as `datasets` and pandas write them into CSV: writes csv/.

    python make_csv.py        # datasets 5.2, pandas 3.1
"""
import json, pathlib
import datasets, numpy, pandas

here = pathlib.Path(__file__).resolve().parent / "csv"
here.mkdir(exist_ok=True)
ROWS = [
    {"question": 'What is 2+3?\nSay "it".', "steps": ["It's 'a' \"b\"\nnext", "so é 5\\2\t", "x\u00a0\U0001f600"], "labels": [1, 0, 1],
     "scores": [0.125, 1.0, 1e-07], "turns": [{"role": "user", "content": "hi, [1 2]"}, {"role": "assistant", "content": "it's"}]},
    {"question": "[1 0 and more", "steps": ["a step that is so long that NumPy breaks the line of its array before the next one begins", "b"],
     "labels": [None, 1], "scores": [None, 0.5], "turns": []},
    {"question": "None", "steps": ["one"], "labels": [0], "scores": [-2.5], "turns": [{"role": "user", "content": None}]},
]
(here / "rows.json").write_text(json.dumps(ROWS, indent=1) + "\n")
data = datasets.Dataset.from_list(ROWS)
data.to_csv(here / "datasets.csv")
pandas.DataFrame(ROWS).to_csv(here / "pandas.csv", index=False)
data.to_pandas().to_csv(here / "pandas-arrays.csv", index=False)
scalars = [{**row, "labels": [None if v is None else numpy.int64(v) for v in row["labels"]],
            "scores": [None if v is None else numpy.float64(v) for v in row["scores"]]} for row in ROWS]
pandas.DataFrame(scalars).to_csv(here / "pandas-scalars.csv", index=False)
nested = {"q": "x", "steps": [{"text": "a", "label": 1, "also": ["k", "l"]}, {"text": "b", "label": 0, "also": ["k"]}], "grid": [[1, 2], [3, 4]]}
(here / "nested.json").write_text(json.dumps(nested) + "\n")
datasets.Dataset.from_list([nested]).to_csv(here / "nested.csv")
long = datasets.Dataset.from_list([{"question": "long", "steps": ["a"] * 1001, "labels": [1] * 1001}])
long.to_csv(here / "shortened.csv")
