// Runs on data in which one class is rare: weights, what selects, and the threshold that the judge keeps.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { train } from '../../src/methods/run.js';
import { readCard } from '../../src/models/card.js';
import { openDevice } from '../../src/runtime/device.js';
import { openScorer } from '../../src/scoring/open.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { TINY_LORA, tinySft } from './tiny-sft.js';

const printed = () => {
  const lines: string[] = [];
  vi.spyOn(console, 'error').mockImplementation((line) => void lines.push(String(line)));
  return lines;
};

async function run(error_rate: number, more: Record<string, object | string> = {}) {
  const folder = temporaryDirectory();
  const config = tinySft({
    data: { source: 'arithmetic', arithmetic: { samples: 60, error_rate }, max_length: 512 },
    lora: TINY_LORA,
    ...more,
  });
  await train({ ...config, run: { ...(config.run as object), output_dir: folder } } as never);
  const report = JSON.parse(readFileSync(join(folder, 'eval.json'), 'utf8'));
  return { folder, report, threshold: readCard(join(folder, 'adapter'))?.judge?.threshold };
}

it('weighs a rare class, selects by AUC and chooses the threshold, and says so', async () => {
  const lines = printed();
  const { folder, report, threshold } = await run(0.15);
  expect(lines.join('\n')).toMatch(
    /\d+\.\d % of the training steps are wrong, so, by auto: both classes weigh the same \(class_weight\), AUC selects .*, validation chooses the threshold/,
  );
  expect(lines.join('\n')).not.toContain('weigh them up');
  expect(threshold).toBe(report.threshold);
  expect(threshold).toBe(report.threshold_sweep.chosen.f1_macro.threshold);
  expect(report.metrics.f1_macro).toBe(report.threshold_sweep.chosen.f1_macro.metrics.f1_macro);
  const device = openDevice('cpu');
  const kept = await openScorer(device, folder);
  const asked = await openScorer(device, folder, { threshold: 0.9 });
  expect([kept.threshold, asked.threshold]).toEqual([threshold, 0.9]);
  for (const each of [kept, asked, device]) each.dispose();
});

it('leaves classes, selection and threshold alone where none is rare, or where they are given', async () => {
  const lines = printed();
  expect(await run(0.5)).toMatchObject({ threshold: 'greedy' });
  const given = { threshold: 0.4, metric_for_best_model: 'f1_macro' };
  const { report, threshold } = await run(0.12, {
    eval: { max_samples: 8 },
    eval_verdicts: given,
    sft: { class_weight: 'none' },
  });
  expect([threshold, report.threshold]).toEqual([0.4, undefined]);
  expect(lines.join('\n')).not.toContain('by auto');
});
