"""Writes parquet-numbers/numbers.parquet and its rows in JSON with digits and kinds, by pyarrow and Python's json.

    python make_parquet_numbers.py        # pyarrow 26
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).parent / "parquet-numbers"
OUT.mkdir(exist_ok=True)

ROWS = [
    {
        "answer": 1234567890123456789,
        "small": 7,
        "score": 2.0,
        "scores": [1.0, 0.5, None],
        "counts": [9007199254740993, 3],
        "call": {"temperature": 20.0, "id": 12345678901234567, "deep": [{"x": -0.0}]},
    },
    {
        "answer": -9007199254740993,
        "small": 0,
        "score": 1e22,
        "scores": [],
        "counts": None,
        "call": {"temperature": 0.1, "id": 1, "deep": [{"x": 1e300}]},
    },
]

pq.write_table(pa.Table.from_pylist(ROWS), OUT / "numbers.parquet", compression="none")
lines = [json.dumps(row, separators=(",", ":")) for row in ROWS]
(OUT / "rows.jsonl").write_text("\n".join(lines) + "\n")
