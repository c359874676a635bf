// Runs in the processes that a launcher starts: the same bits for any number of them, and an end for all when one is lost.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
// @ts-expect-error plain JavaScript
import { contents, differences } from '../../scripts/killed-runs.mjs';
import { MPI_PLUGIN } from '../../src/cluster/carriers.js';
import { methods } from '../../src/methods/table.js';
import { readMetric } from '../../src/run/log-file.js';
import { repetitions } from '../repetitions.js';
import { METHOD_RUNS, writeMethodRuns } from './cluster-runs.js';
import { compiled, type Ended, MAIN, tensors } from './program.js';

let folder: string;
let recipes: ReadonlyMap<string, string>;
let port = 24_000 + (process.pid % 400) * 20;

/**
 * The command in `size` processes with torchrun's variables; `until` is asked all the time whom to send which signal, once, and gets
 * what rank 0 has said.
 * A stopped one is continued when the others have ended.
 */
async function launch(
  size: number,
  args: readonly string[],
  until?: (said: string) => readonly [rank: number, signal: NodeJS.Signals] | undefined,
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
  let said = '';
  const ends = children.map(
    (child, rank) =>
      new Promise<Omit<Ended, 'out'>>((resolve) => {
        let err = '';
        child.stderr.on('data', (text) => {
          err += text;
          if (rank === 0) said = err;
        });
        child.on('close', (code) => resolve({ code, err }));
      }),
  );
  const watch = setInterval(() => {
    const found = until?.(said);
    if (!found) return;
    clearInterval(watch);
    const [lost, signal] = found;
    children[lost]?.kill(signal);
    if (signal !== 'SIGSTOP') return;
    const others = ends.filter((_, rank) => rank !== lost);
    Promise.all(others).then(() => children[lost]?.kill('SIGCONT'));
  }, 20);
  const ended = await Promise.all(ends);
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
const SFT = [
  'data.arithmetic.samples=120',
  'sft.max_steps=3',
  'sft.tokens_per_step=1024',
  'sft.load_best_model_at_end=false',
];

/** The layers of the base are divided among the processes, of which some have fewer micro-batches. */
const SHARED_BASE = ['run.shard_base=true', 'run.gradient_checkpointing=true'];

const moments = (run: string, step: number) =>
  tensors(join(run, 'checkpoints', `step-${step}`, 'optimizer.safetensors'));
const trained = (run: string) => {
  const adapter = join(run, 'adapter', 'adapter_model.safetensors');
  return tensors(existsSync(adapter) ? adapter : join(run, 'model', 'model.safetensors'));
};

describe.skipIf(!compiled)('a run in several processes (needs dist/: npm run build)', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-cluster-'));
    recipes = writeMethodRuns(join(folder, 'recipes'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test.each(METHOD_RUNS.slice(0, repetitions(3, METHOD_RUNS.length)))(
    '%s ends with every bit of one process: weights, metrics, what it makes, evaluation',
    async (name) => {
      const recipe = recipes.get(name) as string;
      const found = [];
      for (const size of [1, 2, 4].slice(0, repetitions(2, 3))) {
        const run = join(folder, `${name}-${size}`);
        const ended = await launch(size, ['run', recipe, '--output', run, ...set('run.shards=4')]);
        for (const { code, err } of ended) expect(code, err).toBe(0);
        found.push(contents(run));
      }
      expect(Object.keys(found[0]!).length).toBeGreaterThan(1);
      for (const run of found.slice(1)) expect(differences(found[0], run)).toEqual([]);
    },
  );

  test('is among those whose bits are compared, whatever its method', () => {
    expect(METHOD_RUNS).toEqual(expect.arrayContaining(Object.keys(methods)));
  });

  test('that was stopped goes on with the same bits in another number of processes', async () => {
    const settings = [...COMMON, ...SFT, 'sft.max_steps=8', 'sft.save_steps=1'];
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
    for (const { err } of ended)
      expect(err).toMatch(/To resume: (?:npx steptrain|node \S+) run --resume \S*stopped\n/);
    const resumed = await launch(4, ['run', '--resume', stopped]);
    for (const { code, err } of resumed) expect(code, err).toBe(0);
    expect(trained(stopped)).toEqual(trained(whole));
    // What each process did, and how long it waited.
    expect(resumed[0]!.err).toMatch(/by rank: \d+, \d+, \d+, \d+ tokens\/s; waited /);
    expect(readMetric(log, 'rank_1_waited_seconds').length).toBeGreaterThan(
      readMetric(log, 'rank_3_waited_seconds').length,
    );
    // A step of few sequences leaves it without any.
    expect(Math.max(...readMetric(log, 'rank_3_tokens_per_second'))).toBeGreaterThan(0);
    expect(readFileSync(join(stopped, 'report.html'), 'utf8')).toMatch(/rank 3, [\d.,]+ tokens/);
  });

  test('stops in all processes when one is told while they sample, or evaluate, and goes on with the same bits', async () => {
    const more = [
      'ppo.rollout_batch=24',
      'ppo.max_iterations=2',
      'ppo.critic_warmup=0',
      'eval.max_samples=60',
    ];
    const args = [
      recipes.get('ppo') as string,
      ...set('run.shards=2', 'data.word_problems.samples=600', ...more),
    ];
    const [whole, stopped] = [join(folder, 'ppo-whole'), join(folder, 'ppo-stopped')];
    expect((await launch(1, ['run', ...args, '--output', whole]))[0]!.code).toBe(0);
    // Said right before the first rollout, and before the evaluation at the end.
    for (const [words, from] of [
      [/ppo step 0: validation/, [...args, '--output', stopped]],
      [/kept the parameters/, ['--resume', stopped]],
    ] as const) {
      const ended = await launch(2, ['run', ...from], (said) =>
        words.test(said) ? [1, 'SIGTERM'] : undefined,
      );
      for (const { code, err } of ended) {
        expect(code, err).not.toBe(0);
        expect(err).toMatch(/To resume: (?:npx steptrain|node \S+) run --resume \S*ppo-stopped\n/);
      }
    }
    for (const { code, err } of await launch(3, ['run', '--resume', stopped])) expect(code, err).toBe(0);
    expect(differences(contents(whole), contents(stopped))).toEqual([]);
  });

  test('ends in all processes, with its reason, when one is killed, and goes on afterwards', async () => {
    const run = join(folder, 'killed');
    const settings = [...COMMON, ...SFT, 'sft.max_steps=60', 'sft.save_steps=1'];
    const folders = join(run, 'checkpoints');
    const saved = () => existsSync(folders) && readdirSync(folders).includes('step-2');
    const ended = await launch(2, ['run', 'quickstart_sft', '--output', run, ...set(...settings)], () =>
      saved() ? [1, 'SIGKILL'] : undefined,
    );
    expect(ended[0]!.code).toBe(1);
    expect(ended[0]!.err).toMatch(/rank 1 on .* \(process \d+\) ended/);
    const again = await launch(2, ['run', '--resume', run, ...set('sft.max_steps=60')]);
    for (const { code, err } of again) expect(code, err).toBe(0);
  });

  // A stop is missed after 15 s.
  test.skipIf(repetitions(0, 1) === 0).each([0, 1])(
    'names rank %i when it is stopped, and that one ends too once it goes on',
    async (lost) => {
      const run = join(folder, `stopped-${lost}`);
      const settings = [...COMMON, ...SFT, 'sft.max_steps=2000', 'sft.save_steps=1'];
      const saved = () => existsSync(join(run, 'checkpoints', 'step-2'));
      const ended = await launch(3, ['run', 'quickstart_sft', '--output', run, ...set(...settings)], () => {
        if (!saved()) return undefined;
        return [lost, 'SIGSTOP'];
      });
      const words = ended.filter((_, rank) => rank !== lost).map(({ err }) => err);
      expect(words.join('\n')).toMatch(new RegExp(`rank ${lost} on .* has said nothing for 15 s`));
      for (const { code, err } of ended) expect(code, err).not.toBe(0);
    },
  );

  test.skipIf(spawnSync('mpirun', ['--version']).status !== 0)(
    'has the same bits under mpirun (needs Open MPI)',
    async () => {
      const bits = [];
      for (const size of [1, 3]) {
        const run = join(folder, `mpirun-${size}`);
        const args = [MAIN, 'run', 'quickstart_sft', '--output', run, ...set(...COMMON, ...SFT)];
        const mpi = ['--allow-run-as-root', '--oversubscribe', '-n', String(size), process.execPath, ...args];
        const { status, stderr } = spawnSync('mpirun', mpi, { encoding: 'utf8' });
        expect(status, stderr).toBe(0);
        bits.push(trained(run));
      }
      expect(bits[1]).toEqual(bits[0]);
    },
  );

  test.skipIf(!existsSync(MPI_PLUGIN) || spawnSync('mpirun', ['--version']).status !== 0).each([
    ['sft', 2, []],
    ['zero', 3, ['run.zero=1']],
    ['zero', 4, ['run.zero=2']],
    ['sft', 3, SHARED_BASE],
    ['sft', 4, [...SHARED_BASE, 'run.overlap=false']],
    ['dpo', 2, SHARED_BASE],
  ] as const)(
    '%s has the same bits where MPI carries its gradients in %i processes, %j (needs Open MPI and steptrain build --mpi)',
    (name, size, more) => {
      const recipe = recipes.get(name) as string;
      const runs = [1, size].map((processes) => {
        const run = join(folder, `mpi-${name}-${size}-${processes}-${more.length}`);
        const sets = set('run.shards=4', ...(processes > 1 ? ['run.collectives=mpi', ...more] : []));
        const args = [MAIN, 'run', recipe, '--output', run, ...sets];
        const mpi = ['--allow-run-as-root', '--oversubscribe', '-n', String(processes), process.execPath];
        const { status, stderr } = spawnSync('mpirun', [...mpi, ...args], { encoding: 'utf8' });
        expect(status, stderr).toBe(0);
        return contents(run);
      });
      expect(differences(runs[0], runs[1])).toEqual([]);
    },
  );

  test('holds moments by process with run.zero, writes the same checkpoints, and goes on in another number', async () => {
    const recipe = recipes.get('zero') as string;
    const sets = set('run.shards=4', 'pretrain.max_steps=12');
    const [whole, divided] = [join(folder, 'zero-whole'), join(folder, 'zero-divided')];
    const log = join(divided, 'metrics.jsonl');
    const begun = () => existsSync(log) && readFileSync(log, 'utf8').includes('"loss"');
    const alone = await launch(1, ['run', recipe, '--output', whole, ...sets]);
    await launch(3, ['run', recipe, '--output', divided, ...sets, ...set('run.zero=1')], () =>
      begun() ? [2, 'SIGTERM'] : undefined,
    );
    const resumed = await launch(2, ['run', '--resume', divided]);
    for (const { code, err } of [...alone, ...resumed]) expect(code, err).toBe(0);
    expect(moments(divided, 12)).toEqual(moments(whole, 12));
    expect(trained(divided)).toEqual(trained(whole));
  });

  test.each(['shm', 'tcp'])(
    'frees gradients with run.zero=2 through %s, to the bits of one process',
    async (name) => {
      const recipe = recipes.get('zero') as string;
      const [whole, divided] = [join(folder, `freed-whole-${name}`), join(folder, `freed-${name}`)];
      const alone = await launch(1, ['run', recipe, '--output', whole, ...set('run.shards=3')]);
      const more = set('run.zero=2', `run.collectives=${name}`);
      const many = await launch(3, ['run', recipe, '--output', divided, ...set('run.shards=3'), ...more]);
      for (const { code, err } of [...alone, ...many]) {
        expect(code, err).toBe(0);
        expect(err).not.toContain('holds gradients whole');
      }
      expect(differences(contents(whole), contents(divided))).toEqual([]);
    },
  );

  test('frees gradients beside a base that is divided, where some processes have nothing to compute', async () => {
    const found = await Promise.all(
      [1, 3].map(async (size) => {
        const run = join(folder, `freed-${size}`);
        const sets = set(
          ...COMMON,
          ...SFT,
          'run.shards=3',
          'sft.tokens_per_step=150',
          'run.gradient_checkpointing=true',
        );
        const more = size > 1 ? set('run.shard_base=true', 'run.zero=2', 'run.collectives=shm') : [];
        const ended = await launch(size, ['run', 'quickstart_sft', '--output', run, ...sets, ...more]);
        for (const { code, err } of ended) expect(code, err).toBe(0);
        return run;
      }),
    );
    const [whole, divided] = found.map(trained);
    expect(divided).toEqual(whole);
  });

  test('ends with the bits of one process where one has ten times the tokens, and others none', async () => {
    const row = (steps: number, at: number) => ({
      question: `What is ${at} + 1?`,
      steps: Array.from({ length: steps }, (_, i) => `${at} + 1 + ${i} = ${at + 1 + i}`),
      labels: Array.from({ length: steps }, (_, i) => (i + at) % 2),
    });
    const files = {
      train: [1, 20, 1, 1, 20, 1, 1, 1].map(row),
      validation: [row(3, 40)],
      test: [row(2, 50)],
    };
    const data = Object.entries(files).map(([part, rows]) => {
      const path = join(folder, `uneven-${part}.jsonl`);
      writeFileSync(path, rows.map((each) => JSON.stringify(each)).join('\n'));
      return `data.${part}=${path}`;
    });
    const sets = ['sft.max_steps=4', 'sft.eval_steps=1', 'sft.tokens_per_step=700'];
    const recipe = join(folder, 'uneven.yaml');
    writeFileSync(recipe, 'extends: quickstart_sft\ndata: { source: auto, max_length: 600 }\n');
    const found = [];
    for (const size of [1, 3]) {
      const run = join(folder, `uneven-${size}`);
      const more = set(...COMMON, ...sets, ...data, 'sft.micro_batch_tokens=600');
      const ended = await launch(size, ['run', recipe, '--output', run, ...more]);
      for (const { code, err } of ended) expect(code, err).toBe(0);
      found.push(contents(run));
    }
    expect(differences(found[0], found[1])).toEqual([]);
  });

  test('bears a process that is busy for longer than it would bear its silence', async () => {
    port += 17;
    const source = `
      import { joinCluster } from ${JSON.stringify(new URL('../../dist/cluster/cluster.js', import.meta.url).href)};
      const rank = Number(process.argv[1]);
      const place = { rank, size: 2, localRank: rank, localSize: 2, mpi: false, job: 'busy', host: '127.0.0.1', ports: [${port}] };
      const cluster = await joinCluster({ place, greeting: {}, silentSeconds: 0.5 });
      // The main thread hears nothing meanwhile, as while it writes a checkpoint.
      if (rank === 1) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);
      await cluster.gather(Uint8Array.of(rank));
      await cluster.close();`;
    const ended = await Promise.all(
      [0, 1].map(
        (rank) =>
          new Promise<string>((resolve) => {
            const args = ['--input-type=module', '-e', source, String(rank)];
            const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] });
            let err = '';
            child.stderr.on('data', (text) => {
              err += text;
            });
            child.on('close', (code) => resolve(`${code} ${err}`));
          }),
      ),
    );
    expect(ended).toEqual(['0 ', '0 ']);
  });

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
  });
});
