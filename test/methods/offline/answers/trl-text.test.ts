// Rows of a text alone: the tokens, the loss and the gradients of TRL's SFTTrainer (test/golden/trl_text, make_trl_text.py).
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { inMemory } from '../../../../src/data/dataset.js';
import { runBatch } from '../../../../src/methods/offline/answers/batch.js';
import { allAnswers } from '../../../../src/methods/offline/answers/kinds.js';
import { heldOutPlan } from '../../../../src/methods/offline/answers/plan.js';
import { likelihood } from '../../../../src/methods/offline/solution-sft.js';
import { train } from '../../../../src/methods/run.js';
import { loadTrainableDecoder } from '../../../../src/models/load.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { answerTokenizer } from '../../../../src/scoring/implicit/tokens.js';
import { loadTokenizer } from '../../../../src/tokenizer/load.js';
import type { Tokenizer } from '../../../../src/tokenizer/tokenizer.js';
import { goldenDirectory } from '../../../models/golden.js';
import { openTest } from '../../../ops/devices.js';

interface Measured {
  readonly ids: readonly (readonly number[])[];
  readonly loss: number;
  readonly grad_norm: number;
}

const file = (name: string) => new URL(`../../../golden/trl_text/${name}`, import.meta.url);
const golden = JSON.parse(readFileSync(file('expected.json'), 'utf8')) as {
  texts: readonly string[];
  plain: Measured;
  begun: Measured;
};
const device = openTest();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-text-'));
});
afterAll(() => {
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

function tokenizerOf(name: string): Promise<Tokenizer> {
  copyFileSync(file(`${name}.json`), join(folder, 'tokenizer.json'));
  const tokens = { bos_token: '<bos>', eos_token: '<eos>', pad_token: '<pad>' };
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(tokens));
  return loadTokenizer(folder);
}

const bare = (text: string): StepRecord => ({
  problem: text,
  prompt: '',
  steps: [{ text, label: null, kind: 'normal' }],
});

it('begins once where a chat template has written the token that begins texts', async () => {
  const tokens = answerTokenizer(await tokenizerOf('begun'), 'auto');
  const [text] = golden.texts as [string];
  const ids = (record: StepRecord) =>
    allAnswers
      .items([record], tokens)
      .flatMap(({ prompt, answers }) => [...prompt, ...(answers[0]?.ids ?? [])]);
  const [begun, usual] = [ids(bare(`<bos>${text}`)), ids(bare(text))];
  expect(begun).toEqual(usual);
  const asked = (prompt: string) => ids({ ...bare(text), prompt });
  expect(asked(`<bos>${text}`)).toEqual(asked(text));
});

describe.each(['plain', 'begun'] as const)('by the tokenizer %s', (name) => {
  it('has the tokens, loss and gradients of TRL', async () => {
    const tokens = answerTokenizer(await tokenizerOf(name), 'auto');
    const items = allAnswers.items(golden.texts.map(bare), tokens);
    const { ids, loss, grad_norm } = golden[name];
    expect(items.map(({ prompt, answers }) => [...prompt, ...(answers[0]?.ids ?? [])])).toEqual(ids);

    const { decoder, parameters } = loadTrainableDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
    const plan = heldOutPlan(inMemory(items), { pairs: false, maxLength: 64 });
    const objective = likelihood();
    const { metrics } = await runBatch(
      { decoder, role: {}, objective, plan, references: [], microBatchTokens: 30 },
      0,
      { parameters, dropout: { seed: 0, step: 0 } },
    );
    const grads = await parameters.grads.readFloats();
    parameters.dispose();
    decoder.dispose();
    // Every token but the first has one before it.
    expect(metrics.targets).toBe(ids.reduce((sum, { length }) => sum + length - 1, 0));
    expect(metrics.loss).toBeCloseTo(loss, 4);
    expect(Math.abs(Math.hypot(...grads) / grad_norm - 1)).toBeLessThan(2e-4);
  });

  it('learns a text of one token only after another', async () => {
    const tokens = answerTokenizer(await tokenizerOf(name), 'auto');
    expect(allAnswers.items([bare('<eos>')], tokens)).toHaveLength(name === 'plain' ? 0 : 1);
  });
});

it('method: solution_sft learns a file of them', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const path = join(folder, 'texts.jsonl');
  const rows = Array.from({ length: 12 }, (_, i) => ({ text: `${i}+1=${i + 1}\n` }));
  writeFileSync(path, rows.map((row) => JSON.stringify(row)).join('\n'));
  const output = join(folder, 'run');
  const result = await train(
    {
      method: 'solution_sft',
      lora: { r: 2 },
      data: { train: path, max_length: 64 },
      solution_sft: { max_steps: 2, batch_size: 4, micro_batch_tokens: 64 },
      run: { device: 'cpu', threads: 1, logging_steps: 1 },
    } as never,
    { output },
  );
  said.mockRestore();
  expect(result.status).toBe('finished');
  const log = readFileSync(join(output, 'metrics.jsonl'), 'utf8').trim().split('\n');
  const steps = log
    .map((line) => JSON.parse(line))
    .filter(({ phase, loss }) => phase === 'solution_sft' && loss !== undefined);
  expect(steps).toHaveLength(2);
  for (const { loss, targets } of steps) {
    expect(loss).toBeGreaterThan(0);
    expect(targets).toBeGreaterThan(4 * 5);
  }
});
