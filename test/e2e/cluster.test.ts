// Runs in the processes that a launcher starts: the same bits for any number of them, and an end for all when one is lost.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { repetitions } from '../repetitions.js';
import { compiled, type Ended, MAIN, metrics, tensors } from './program.js';

let folder: string;
let port = 24_000 + (process.pid % 400) * 20;

/** The command in `size` processes with torchrun's variables; `until` is asked all the time whom to send which signal, once. */
async function launch(
  size: number,
  args: readonly string[],
  until?: () => readonly [rank: number, signal: NodeJS.Signals] | undefined,
): Promise<Omit<Ended, 'out'>[]> {
  port += 17;
  const children = Array.from({ length: size }, (_, rank) => {
    const place = {
      RANK: String(rank),
      WORLD_SIZE: String(size),
      LOCAL_RANK: String(rank),
      LOCAL_WORLD_SIZE: String(size),
      MASTER_ADDR: '127.0.0.1',
      MASTER_PORT: String(port),
      TORCHELASTIC_RUN_ID: `test-${port}`,
    };
    return spawn(process.execPath, [MAIN, ...args], {
      env: { ...process.env, ...place },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
  });
  const watch = setInterval(() => {
    const found = until?.();
    if (!found) return;
    clearInterval(watch);
    children[found[0]]?.kill(found[1]);
  }, 20);
  const ended = await Promise.all(
    children.map(
      (child) =>
        new Promise<Omit<Ended, 'out'>>((resolve) => {
          let err = '';
          child.stderr.on('data', (text) => {
            err += text;
          });
          child.on('close', (code) => resolve({ code, err }));
        }),
    ),
  );
  clearInterval(watch);
  return ended;
}

const set = (...values: readonly string[]) => values.flatMap((value) => ['--set', value]);
const COMMON = [
  'run.device=cpu',
  'run.threads=1',
  'run.shards=4',
  'run.logging_steps=1',
  'eval.max_samples=6',
];
const METHODS: Readonly<Record<string, readonly string[]>> = {
  quickstart_sft: [
    'data.arithmetic.samples=120',
    'sft.max_steps=3',
    'sft.tokens_per_step=1024',
    'sft.load_best_model_at_end=false',
  ],
  stepamc_arithmetic: [
    'data.arithmetic.samples=120',
    'sft.max_steps=2',
    'sft.load_best_model_at_end=false',
    'frn.max_steps=2',
    'ppo.max_iterations=1',
    'ppo.load_best_model_at_end=false',
  ],
  quickstart_reinforce: [
    'data.word_problems.samples=60',
    'ppo.max_iterations=2',
    'ppo.rollout_batch=6',
    'ppo.load_best_model_at_end=false',
    'rollout.num_generations=4',
  ],
  quickstart_kto: ['data.word_problems.samples=20', 'kto.max_steps=3', 'eval.max_samples=2'],
  quickstart_step_kto: [
    'data.word_problems.samples=20',
    'step_kto.iterations=1',
    'sampling.num_generations=4',
    'eval.max_samples=2',
  ],
};

const learned = async (run: string) => (await metrics(run)).filter((line) => 'loss' in line);
const trained = (run: string) => {
  const adapter = join(run, 'adapter', 'adapter_model.safetensors');
  return tensors(existsSync(adapter) ? adapter : join(run, 'model', 'model.safetensors'));
};

describe.skipIf(!compiled)('a run in several processes (needs dist/: npm run build)', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-cluster-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test.each(Object.entries(METHODS).slice(0, repetitions(3, 5)))(
    '%s has the bits of one process',
    async (recipe, own) => {
      const runs = [];
      for (const size of [1, 2, 4].slice(0, repetitions(2, 3))) {
        const run = join(folder, `${recipe}-${size}`);
        const ended = await launch(size, ['run', recipe, '--output', run, ...set(...COMMON, ...own)]);
        for (const { code, err } of ended) expect(code, err).toBe(0);
        runs.push({ metrics: await learned(run), trained: trained(run) });
      }
      expect(runs[0]!.metrics.length).toBeGreaterThan(0);
      for (const run of runs.slice(1)) expect(run).toEqual(runs[0]);
    },
    300_000,
  );

  test('that was stopped goes on with the same bits in another number of processes', async () => {
    const settings = [...COMMON, ...METHODS.quickstart_sft!, 'sft.max_steps=8', 'sft.save_steps=1'];
    const whole = join(folder, 'whole');
    expect(
      (await launch(1, ['run', 'quickstart_sft', '--output', whole, ...set(...settings)]))[0]!.code,
    ).toBe(0);
    const stopped = join(folder, 'stopped');
    const log = join(stopped, 'metrics.jsonl');
    const begun = () => existsSync(log) && readFileSync(log, 'utf8').includes('"loss"');
    // One process alone is told; both stop after the same step.
    const ended = await launch(2, ['run', 'quickstart_sft', '--output', stopped, ...set(...settings)], () =>
      begun() ? [1, 'SIGTERM'] : undefined,
    );
    expect(new Set(ended.map(({ code }) => code)).size).toBe(1);
    for (const { code, err } of await launch(4, ['run', '--resume', stopped])) expect(code, err).toBe(0);
    expect(trained(stopped)).toEqual(trained(whole));
  }, 300_000);

  test('ends in all processes, with its reason, when one is killed, and goes on afterwards', async () => {
    const run = join(folder, 'killed');
    const settings = [...COMMON, ...METHODS.quickstart_sft!, 'sft.max_steps=60', 'sft.save_steps=1'];
    const folders = join(run, 'checkpoints');
    const saved = () => existsSync(folders) && readdirSync(folders).includes('step-2');
    const ended = await launch(2, ['run', 'quickstart_sft', '--output', run, ...set(...settings)], () =>
      saved() ? [1, 'SIGKILL'] : undefined,
    );
    expect(ended[0]!.code).toBe(1);
    expect(ended[0]!.err).toMatch(/rank 1 on .* \(process \d+\) ended/);
    const again = await launch(2, ['run', '--resume', run, ...set('sft.max_steps=60')]);
    for (const { code, err } of again) expect(code, err).toBe(0);
  }, 300_000);

  test.skipIf(spawnSync('mpirun', ['--version']).status !== 0)(
    'has the same bits under mpirun (needs Open MPI)',
    async () => {
      const bits = [];
      for (const size of [1, 3]) {
        const run = join(folder, `mpirun-${size}`);
        const args = [
          MAIN,
          'run',
          'quickstart_sft',
          '--output',
          run,
          ...set(...COMMON, ...METHODS.quickstart_sft!),
        ];
        const mpi = ['--allow-run-as-root', '--oversubscribe', '-n', String(size), process.execPath, ...args];
        const { status, stderr } = spawnSync('mpirun', mpi, { encoding: 'utf8' });
        expect(status, stderr).toBe(0);
        bits.push(trained(run));
      }
      expect(bits[1]).toEqual(bits[0]);
    },
    120_000,
  );

  test('is refused where processes differ', async () => {
    const ended = await launch(2, [
      'run',
      'quickstart_sft',
      '--output',
      join(folder, 'x'),
      '--share-stages',
      folder,
    ]);
    for (const { code, err } of ended) {
      expect(code).toBe(1);
      expect(err).toMatch(/--share-stages is for runs in one process/);
    }
  }, 60_000);
});
