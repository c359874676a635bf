// A run whose training brought nothing better says so, and which settings keep what it learned.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { train } from '../../src/methods/run.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { TINY_LORA, tinySft } from './tiny-sft.js';

async function warningsOf(more: Record<string, object>): Promise<string> {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  const output = temporaryDirectory();
  const sft = { load_best_model_at_end: true, learning_rate: 1e-30 };
  await train(tinySft({ lora: TINY_LORA, ...more, sft: { ...sft, ...more.sft } }), { output });
  return (JSON.parse(readFileSync(join(output, 'eval.json'), 'utf8')).warnings ?? []).join('\n');
}

const LAST = 'sft.load_best_model_at_end=false keeps the last step';

it('names AUC and the last step', async () => {
  expect(await warningsOf({})).toContain(
    `the parameters of step 0 are kept, and the verdict words say nothing of these steps; give more rows, train longer, or take a base that ` +
      `knows such text; if its loss fell, --set eval_verdicts.metric_for_best_model=auc selects by AUC, and ${LAST}`,
  );
});

it('names the last step alone where AUC selects', async () => {
  const said = await warningsOf({ eval_verdicts: { metric_for_best_model: 'auc' } });
  expect(said).toContain(`; if its loss fell, ${LAST}`);
  expect(said).not.toContain('metric_for_best_model');
});

it('says nothing where the last step is kept', async () => {
  expect(await warningsOf({ sft: { load_best_model_at_end: false } })).not.toContain('step 0');
});
