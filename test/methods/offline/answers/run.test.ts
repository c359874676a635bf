// Offline methods from a data file to an adapter, in this process.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { resume, train } from '../../../../src/methods/run.js';
import type { RunConfigInput } from '../../../../src/methods/table.js';
import { openSafetensors } from '../../../../src/weights/safetensors.js';

let folder: string;
const sums = Array.from({ length: 30 }, (_, i) => [1 + (i % 9), 2 + ((i * 7) % 11)] as const);
const rows = {
  kto: sums.flatMap(([a, b]) => [
    { prompt: `${a}+${b}\n`, completion: `${a}+${b}=${a + b}\n`, label: true },
    { prompt: `${a}+${b}\n`, completion: `${a}+${b}=${a + b + 1}\n`, label: false },
  ]),
  dpo: sums.map(([a, b]) => ({
    prompt: `${a}+${b}\n`,
    chosen: `${a}+${b}=${a + b}\n`,
    rejected: `${a}+${b}=${a + b + 1}\n`,
  })),
};

const step = (text: string, label: 1 | 0 | null, score?: number) => ({ text, label, kind: 'normal', score });
const solutions = sums.flatMap(([a, b]) =>
  ([1, 0] as const).map((right) => ({
    problem: `${a}+${b}+1`,
    steps: [
      step(`${a}+1=${a + 1}`, 1, 0.9),
      step(`${a + 1}+${b}=${a + b + 2 - right}`, right, right ? 0.8 : 0.1),
    ],
    outcome: right,
  })),
);

beforeAll(async () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  folder = await mkdtemp(join(tmpdir(), 'steptrain-offline-'));
  for (const [name, list] of Object.entries({ ...rows, records: solutions }))
    await writeFile(join(folder, `${name}.jsonl`), list.map((row) => JSON.stringify(row)).join('\n'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

let runs = 0;
async function trained(
  method: string,
  settings: object,
  { signal, data = method, dropout = 0.1 }: { signal?: AbortSignal; data?: string; dropout?: number } = {},
) {
  const config = {
    method,
    data: { train: join(folder, `${data}.jsonl`), max_length: 48, split: [8, 1, 1] },
    lora: { r: 4, lora_alpha: 8, lora_dropout: dropout },
    [method]: {
      learning_rate: 1e-3,
      batch_size: 8,
      micro_batch_tokens: 96,
      warmup_ratio: 0,
      save_steps: 1,
      ...settings,
    },
    run: { device: 'cpu', threads: 1, logging_steps: 1 },
  } as unknown as RunConfigInput;
  const result = await train(config, { output: join(folder, `run${runs++}`), signal });
  return { ...result, ...(await read(result.directory, method)) };
}

async function read(directory: string, method: string) {
  const lines = (await readFile(join(directory, 'metrics.jsonl'), 'utf8')).trim().split('\n');
  const metrics = lines.map((line) => JSON.parse(line) as Record<string, number | string>);
  return { metrics, steps: metrics.filter(({ phase, loss }) => phase === method && loss !== undefined) };
}

function weights(directory: string): Map<string, string> {
  const file = openSafetensors(join(directory, 'adapter', 'adapter_model.safetensors'));
  try {
    return new Map(
      [...file.tensors.keys()].map((name) => [name, Buffer.from(file.read(name)).toString('base64')]),
    );
  } finally {
    file.close();
  }
}

it.each([
  ['kto', 0.5],
  ['dpo', Math.log(2)],
] as const)(
  '%s begins where policy and reference agree, and learns from a TRL file',
  async (method, first) => {
    const { status, steps, metrics } = await trained(method, { num_train_epochs: 2 });
    expect(status).toBe('finished');
    expect(steps[0]?.loss).toBeCloseTo(first, 6);
    expect(steps.at(-1)?.loss as number).toBeLessThan(0.97 * first);
    expect(metrics.at(-1)).toMatchObject({ phase: 'test', held_out_loss: expect.any(Number) });
  },
);

it.each(['kto', 'dpo'] as const)(
  '%s: smaller micro-batches change nothing but the rounding',
  async (method) => {
    const [whole, split] = [
      await trained(method, { micro_batch_tokens: 4096, max_steps: 3 }),
      await trained(method, { micro_batch_tokens: 96, max_steps: 3 }),
    ];
    for (const [i, step] of whole.steps.entries()) {
      for (const key of ['loss', 'grad_norm', 'rewards_chosen', 'rewards_rejected'])
        expect(split.steps[i]?.[key], key).toBeCloseTo(step[key] as number, 5);
    }
  },
);

// As TRL's `disable_dropout`: log-probs that are compared have no noise. A likelihood is learned under it.
it.each([
  ['kto', 'kto', true],
  ['dpo', 'dpo', true],
  ['orpo', 'dpo', true],
  ['simpo', 'dpo', true],
  ['solution_sft', 'records', false],
] as const)('%s from %s: dropout of the adapter changes nothing: %s', async (method, data, same) => {
  const [none, half] = await Promise.all(
    [0, 0.5].map((dropout) => trained(method, { max_steps: 3 }, { data, dropout })),
  );
  const [first, second] = [none, half].map((run) =>
    run?.steps.map(({ loss, grad_norm }) => [loss, grad_norm]),
  );
  expect(first).toHaveLength(3);
  if (same) expect(second).toEqual(first);
  else expect(second).not.toEqual(first);
});

it('a run that was stopped goes on to the same bits', async () => {
  const whole = await trained('kto', { max_steps: 4 });
  const stop = new AbortController();
  const write = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    if (/^kto step 1\//.test(String(text))) stop.abort();
    return true;
  });
  const stopped = await trained('kto', { max_steps: 4 }, { signal: stop.signal });
  write.mockRestore();
  expect(stopped.status).toBe('interrupted');
  await resume(stopped.directory);
  expect(weights(stopped.directory)).toEqual(weights(whole.directory));
});

it('refuses what KTO cannot learn from', async () => {
  await expect(trained('kto', { batch_size: 1 })).rejects.toThrow(
    /kto.batch_size is 1.*the reference point would be the reward itself/s,
  );
  await writeFile(join(folder, 'dpo.jsonl'), JSON.stringify({ prompt: 'a', completion: 'b', label: true }));
  await expect(trained('dpo', {})).rejects.toThrow(
    /gives no pairs of answers to train on: expected rows with chosen and rejected/,
  );
});
