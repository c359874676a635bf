#!/usr/bin/env bash
# Jinja 3.1.6 runs the `else` of a loop that had passes, where each of them ended by `continue` or `break`.
#
# Expected (Jinja's documentation): the block runs where the loop had no pass at all.
# Seen 2026-12-01: it runs as long as no pass came to its end, so a loop over two items that ends each pass by `continue`
# prints both of them and what stands for an empty list. transformers renders chat templates with this extension.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jinja2==3.1.6
"$folder/venv/bin/python" - <<'PY'
import sys
from jinja2 import Environment

environment = Environment(extensions=["jinja2.ext.loopcontrols"])
cases = [
    ("{% for x in [1, 2] %}{{ x }}{% continue %}{% else %}none{% endfor %}", "12", "12none"),
    ("{% for x in [1, 2] %}{{ x }}{% break %}{% else %}none{% endfor %}", "1", "1none"),
    ("{% for x in [1, 2] %}{{ x }}{% else %}none{% endfor %}", "12", "12"),
]
changed = False
for template, expected, seen in cases:
    got = environment.from_string(template).render()
    print(f"{template}: {got!r}; expected {expected!r}")
    changed = changed or got != seen
sys.exit(1 if changed else 0)
PY
