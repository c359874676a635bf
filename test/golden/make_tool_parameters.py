"""Writes tool-parameters.json: what vLLM's parser of Qwen 3.5's calls makes of texts under schemas. A list for each schema,
in the order of the texts; "text" stands for the text as it is.

    python make_tool_parameters.py        # vllm 0.32
"""

import json
from pathlib import Path

from vllm.tool_parsers.utils import coerce_to_schema_type, extract_types_from_schema

SCHEMAS = [
    *({"type": name} for name in ("string", "integer", "number", "boolean", "object", "array", "any", "str", "int", "bool")),
    {"type": ["string", "null"]},
    {"type": ["integer", "null"]},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"enum": ["a", 1]},
    {"enum": ["1", "2"]},
    {"$ref": "#/x"},
    {},
]
TEXTS = [
    *("123", "1.0", "2.50", "true", "True", "None", "null", "[1, 2]", '{"a": 1}', "007", "-5", "1e400", "[1e400]", "text"),
    *("", "0", "1", "{bad", '"quoted"', "12345678901234567891", " 7 ", "NaN", "\n", "a\nb", "+5", "1e3"),
]


def read(text, schema):
    value = coerce_to_schema_type(text, extract_types_from_schema(schema))
    return {"text": True} if value == text and isinstance(value, str) else {"value": value}


rows = [{"schema": schema, "read": [read(text, schema) for text in TEXTS]} for schema in SCHEMAS]
lines = ",\n".join(json.dumps(row) for row in rows)
Path(__file__).with_name("tool-parameters.json").write_text(f'{{"texts": {json.dumps(TEXTS)},\n"rows": [\n{lines}\n]}}\n')
