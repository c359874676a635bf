#!/usr/bin/env bash
# @huggingface/jinja 0.5.11 drops the text that a pass of a loop wrote before `continue`, and keeps names between passes.
#
# Expected (jinja2, transformers): `{% continue %}` ends the pass and keeps its text; a name set in one pass is unknown in
# the next.
# Seen 2026-11-30: the text is gone without an error, so EXAONE 4's chat template loses the system message; the name is
# still there.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null
npm install --silent --ignore-scripts @huggingface/jinja@0.5.11
cat >case.mjs <<'JS'
import { Template } from '@huggingface/jinja';
const messages = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Hi' },
];
const cases = [
  [
    "{% for m in messages %}{% if m.role == 'system' %}[{{ m.content }}]{% continue %}{% endif %}({{ m.content }}){% endfor %}",
    '[Be brief.](Hi)',
    '(Hi)',
  ],
  [
    '{% for m in messages %}{% if loop.first %}{% set name = m.role %}{% endif %}<{{ name }}>{% endfor %}',
    '<system><>',
    '<system><system>',
  ],
];
let changed = false;
for (const [template, python, seen] of cases) {
  const got = new Template(template).render({ messages });
  console.log(`${template}: ${JSON.stringify(got)}; jinja2: ${JSON.stringify(python)}`);
  if (got !== seen) changed = true;
}
process.exit(changed ? 1 : 0);
JS
node case.mjs
