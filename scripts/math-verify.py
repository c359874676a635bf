"""Verdicts of Math-Verify with its default settings: reads a JSON list of [gold, text] from stdin, writes JSON to stdout."""
import json
import logging
import platform
import sys
from importlib.metadata import version

import sympy
from math_verify import parse, verify

logging.disable(logging.CRITICAL)
parsed = {}


def gold_of(text):
    if text not in parsed:
        parsed[text] = parse(text)
    return parsed[text]


pairs = json.load(sys.stdin)
verdicts = []
for number, (gold, text) in enumerate(pairs):
    verdicts.append(bool(verify(gold_of(gold), parse(text))))
    if number % 1000 == 0:
        print(f"{number} of {len(pairs)}", file=sys.stderr)
json.dump(
    {
        "version": version("math-verify"),
        "sympy": sympy.__version__,
        "python": platform.python_version(),
        "verdicts": verdicts,
    },
    sys.stdout,
)
