"""Writes parquet-numbers/numbers.parquet and its rows in JSON with digits and kinds, by pyarrow and Python's json, and
decimals.parquet with decimals in bytes and in whole numbers, and the text of each; floats.parquet with singles and
halves, and each as NumPy prints it; times.parquet with dates and times, and each as pandas prints it, in UTC where a zone
is set; texts.parquet and not-utf8.parquet with what is said there. repeated.parquet was
written by parquetjs: @dsnp/parquetjs 1.8.8, UTF8 `text`, repeated INT64 `list`, repeated `steps` of UTF8 `text` and repeated
BOOLEAN `marks`.

    python make_parquet_numbers.py        # pyarrow 26, numpy 2, pandas 3
"""

import json
from datetime import UTC
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
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

DECIMALS = {
    "narrow": (["0.3", "12.34", "-0.05", "1.00", None], 9, 2),
    "wide": (["12345678901234567890.123", "-0.001", "0.000", "1.000", None], 38, 3),
    "whole": (["12345678901234567890", "-7", "0", "9007199254740993", None], 38, 0),
}
columns = {
    name: pa.array([text and Decimal(text) for text in texts], pa.decimal128(*kind)) for name, (texts, *kind) in DECIMALS.items()
}
columns["list"] = pa.array([[Decimal("0.3"), None], [], None, [Decimal("2.0")], None], pa.list_(pa.decimal128(5, 1)))
rows = [{name: column[i].as_py() for name, column in columns.items()} for i in range(5)]
for name, integers in (("bytes", False), ("integers", True)):
    pq.write_table(pa.table(columns), OUT / f"decimals-{name}.parquet", compression="none", store_decimal_as_integer=integers)
number = lambda value: None if value is None else [number(each) for each in value] if isinstance(value, list) else str(value)
(OUT / "decimals.json").write_text(json.dumps([{name: number(value) for name, value in row.items()} for row in rows]) + "\n")

random = np.random.default_rng(0)
with np.errstate(over="ignore"):
    SINGLES = [0.1, -0.3, 2.5, 3.14159, 1 / 3, 16777216.0, 16777217.0, 1e22, 1e-7, 1e-45, 3.4028235e38, 0.000123457, 2.0, 0.0]
    singles = np.float32([*SINGLES, *random.standard_normal(40), *10 ** random.uniform(-30, 30, 40)])
    halves = np.float16([*SINGLES[:5], 2049.0, 60000.0, 0.001, 6e-8, 0.9995, 2.0, *random.standard_normal(83)])
pq.write_table(
    pa.table({
        "single": pa.array(singles), "half": pa.array(halves), "double": pa.array(singles.astype(np.float64)),
        "list": pa.array([[value, None] for value in singles], pa.list_(pa.float32())),
    }),
    OUT / "floats.parquet",
    compression="none",
)
printed = [{"single": str(a), "half": str(b), "double": repr(float(a))} for a, b in zip(singles, halves, strict=True)]
(OUT / "floats.json").write_text(json.dumps(printed) + "\n")

TIMES = ["2026-03-01 12:30:00.000001", "1969-12-31 23:59:59.999999", "2026-03-01 00:00:00", "1582-10-15 01:02:03.100000", None]
NANOS = ["2026-03-01 12:30:00.000000001", "1969-12-31 23:59:59.999999999", *TIMES[2:3], "1700-01-01 00:00:00.000001", None]
stamps = lambda texts, unit, zone=None: pa.array(
    [text and pd.Timestamp(text, tz="UTC" if zone else None).as_unit(unit) for text in texts], pa.timestamp(unit, zone))
columns = {
    "micros": stamps(TIMES, "us"), "millis": stamps([text and text[:23] for text in TIMES], "ms"), "nanos": stamps(NANOS, "ns"),
    "utc": stamps(TIMES, "us", "UTC"), "berlin": stamps(TIMES, "us", "Europe/Berlin"),
    "day": pa.array([text and pd.Timestamp(text).date() for text in TIMES], pa.date32()),
}
clocks = [text and pd.Timestamp(text).time() for text in TIMES]
for unit, kind in ("s", pa.time32), ("ms", pa.time32), ("us", pa.time64), ("ns", pa.time64):
    size = {"s": 10**6, "ms": 1000}.get(unit, 1)
    cut = [each and each.replace(microsecond=each.microsecond // size * size) for each in clocks]
    columns[f"clock {unit}"] = pa.array(cut, kind(unit))
columns["clocks"] = pa.array([{"at": [each]} for each in clocks], pa.struct([("at", pa.list_(pa.time64("us")))]))
columns["list"] = pa.array([[each, None] for each in columns["micros"].to_pylist()], pa.list_(pa.timestamp("us")))
pq.write_table(pa.table(columns), OUT / "times.parquet", compression="none")


def text(value):
    if value is None or isinstance(value, list):
        return value and [text(each) for each in value]
    if isinstance(value, dict):
        return {name: text(each) for name, each in value.items()}
    return str(value.astimezone(UTC) if getattr(value, "tzinfo", None) else value)


read = pq.read_table(OUT / "times.parquet").to_pylist()
(OUT / "times.json").write_text(json.dumps([{name: text(value) for name, value in row.items()} for row in read]) + "\n")

# Two columns, or two fields of one, of the same name.
one = pa.array(["x"])
inside = pa.StructArray.from_arrays([one, one], names=["text", "text"])
twice = {"twice": ([one, one], ["completion", "completion"]), "twice-inside": ([inside], ["completion"])}
for name, (arrays, names) in twice.items():
    pq.write_table(pa.Table.from_arrays([one, *arrays], names=["prompt", *names]), OUT / f"{name}.parquet", compression="none")

# Texts with a byte order mark, a column without a value in a page, and bytes that are no text.
marked = ["\ufeffA mark", "none", "\ufeff"]
texts = {"text": marked, "list": [["\ufeffa"], [], None], "empty": [None] * 3, "bytes": [b"\xff\xfe", "\ufeffé".encode(), None]}
texts["infinite"] = [float("inf"), -float("inf"), 2.0]
types = {"text": pa.string(), "list": pa.list_(pa.string()), "empty": pa.string(), "bytes": pa.binary(), "infinite": pa.float64()}
pq.write_table(pa.table({name: pa.array(values, types[name]) for name, values in texts.items()}), OUT / "texts.parquet", compression="lz4")
broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")])
pq.write_table(pa.table({"text": broken}), OUT / "not-utf8.parquet", compression="none")
