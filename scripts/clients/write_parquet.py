"""Writes the same rows as Parquet by every library and compression, and prints the versions and the names of the files as JSON.

    python write_parquet.py FOLDER        # polars, duckdb, pyarrow, pandas, datasets
"""
import json, pathlib, sys
import datasets, duckdb, pandas, polars, pyarrow, pyarrow.parquet

folder = pathlib.Path(sys.argv[1])
datasets.disable_progress_bars()
rows = [
    {
        "question": None if i % 7 == 3 else f"What is {i} + {i * 31 % 17}? é😀\n" * (1 + i % 5),
        "steps": [f"Step {j} of {i}." for j in range(i % 6)],
        "labels": [None if (i + j) % 5 == 4 else (i * j) % 2 for j in range(i % 6)],
        "turns": [{"role": "user", "content": "hi" * i}, {"role": "assistant", "content": None}][: i % 3],
        "score": None if i % 11 == 0 else i / 8,
        "count": i - 1500,
        "right": i % 3 == 0,
    }
    for i in range(3000)
]
(folder / "rows.json").write_text(json.dumps(rows))
arrow_table = pyarrow.Table.from_pylist(rows)
names = []


def written(name, write):
    write(str(folder / f"{name}.parquet"))
    names.append(f"{name}.parquet")


for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    written(f"pyarrow-{codec}", lambda file: pyarrow.parquet.write_table(arrow_table, file, compression=codec, row_group_size=1000))
    written(f"pyarrow-{codec}-v2-plain", lambda file: pyarrow.parquet.write_table(
        arrow_table, file, compression=codec, data_page_version="2.0", use_dictionary=False, data_page_size=4096))
frame = polars.from_arrow(arrow_table)
written("polars-default", frame.write_parquet)
for codec in ["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    written(f"polars-{codec}", lambda file: frame.write_parquet(file, compression=codec))
written("duckdb-default", lambda file: duckdb.sql(f"copy (from arrow_table) to '{file}' (format parquet)"))
for codec in ["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"]:
    for version in ["v1", "v2"]:
        written(f"duckdb-{codec}-{version}", lambda file: duckdb.sql(
            f"copy (from arrow_table) to '{file}' (format parquet, compression {codec}, parquet_version {version})"))
plain = arrow_table.to_pandas(types_mapper=pandas.ArrowDtype)
for codec in [None, "snappy", "gzip", "brotli", "zstd", "lz4"]:
    written(f"pandas-{codec}", lambda file: plain.to_parquet(file, compression=codec, index=False))
written("datasets-default", datasets.Dataset(arrow_table).to_parquet)
versions = ", ".join(f"{each.__name__} {each.__version__}" for each in (polars, duckdb, pyarrow, pandas, datasets))
print(json.dumps({"versions": versions, "files": names}))
