#!/usr/bin/env bash
# @huggingface/jinja 0.5.11 ignores the argument of strip, lstrip and rstrip.
#
# Expected (Python's str.lstrip, jinja2, transformers): '\n    return x'.lstrip('\n') keeps the four blanks.
# Seen 2026-11-29: the blanks are gone too, without an error. Chat templates use such calls: Qwen3's own has lstrip('\n'),
# so code at the beginning of a reply loses its indentation.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null
npm install --silent --ignore-scripts @huggingface/jinja@0.5.11
cat >case.mjs <<'JS'
import { Template } from '@huggingface/jinja';
const cases = [
  ["{{ text.lstrip('\\n') }}", { text: '\n    return x' }, '    return x', 'return x'],
  ["{{ text.strip('-') }}", { text: '--a--' }, 'a', '--a--'],
];
let changed = false;
for (const [template, values, python, seen] of cases) {
  const got = new Template(template).render(values);
  console.log(`${template} of ${JSON.stringify(values.text)}: ${JSON.stringify(got)}; Python: ${JSON.stringify(python)}`);
  if (got !== seen) changed = true;
}
process.exit(changed ? 1 : 0);
JS
node case.mjs
