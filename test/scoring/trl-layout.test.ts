// The layout `trl` beside what TRL 1.13's PRMTrainer made of the same rows.
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { loadTokenizer } from '../../src/api/model.js';
import { LAYOUTS } from '../../src/scoring/published/layouts.js';

interface Row {
  readonly prompt: string;
  readonly completions: readonly string[];
  readonly input_ids: readonly number[];
  readonly label_positions: readonly number[];
}

const shared = fileURLToPath(new URL('../../../shared/', import.meta.url));
const isHere = existsSync(`${shared}golden/trl-prm`);
if (!isHere) console.log('skipped: the ids of TRL, which are not here (../shared/golden/trl-prm)');

it.skipIf(!isHere)('joins the ids of problem, steps and separators', async () => {
  const tokenizer = await loadTokenizer(`${shared}models/smollm2-files`);
  const { rows } = JSON.parse(readFileSync(`${shared}golden/trl-prm/expected.json`, 'utf8')) as {
    rows: Row[];
  };
  expect(rows).toHaveLength(3);
  for (const { prompt, completions, input_ids, label_positions } of rows)
    expect(LAYOUTS.trl.read(tokenizer, { problem: prompt, steps: completions })).toEqual({
      ids: input_ids,
      rows: label_positions,
    });
});
