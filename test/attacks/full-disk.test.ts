// A disk that is really full, and one that is read-only: a small file system of our own; and one that is full for a single file
// (no-space.cc). One sentence, nothing lost, and the resumed run ends with the bits of one that had room.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, MAIN, metrics, steptrain, tensors } from '../e2e/program.js';

const UNSHARE = ['-rm', 'sh', '-ec'];
const canMount =
  spawnSync('unshare', [
    ...UNSHARE,
    'd=$(mktemp -d); mount -t tmpfs -o size=1m none "$d"; umount "$d"; rmdir "$d"',
  ]).status === 0;
if (!canMount) console.warn('no user namespaces: the tests of a full disk are skipped');

const RUN = ['run', 'quickstart_sft'];
const SMALL = Object.entries({
  'data.arithmetic.samples': 120,
  'sft.tokens_per_step': 512,
  'sft.micro_batch_tokens': 256,
  'sft.max_steps': 6,
  'sft.save_steps': 2,
  'run.logging_steps': 1,
  'run.threads': 1,
}).flatMap(([key, value]) => ['--set', `${key}=${value}`]);

describe.skipIf(!compiled || !canMount)('a run (needs dist/: npm run build)', () => {
  let folder: string;
  let whole: Awaited<ReturnType<typeof result>>;
  const result = async (run: string) => ({
    metrics: await metrics(run),
    adapter: tensors(join(run, 'adapter', 'adapter_model.safetensors')),
  });
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'steptrain-full-'));
    const run = join(folder, 'whole');
    const { code, err } = await steptrain([...RUN, '--output', run, ...SMALL]);
    expect(code, err).toBe(0);
    whole = await result(run);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Shell with `$D` as a file system of `size`, gone with the shell, and `$OUT` outside it. */
  function onDisk(size: string, script: string) {
    const disk = mkdtempSync(join(folder, 'disk-'));
    const { status, stdout, stderr } = spawnSync(
      'unshare',
      [
        ...UNSHARE,
        `mount -t tmpfs -o size=${size} none "$D"\nsteptrain() { "$NODE" "$MAIN" "$@"; }\n${script}`,
        'sh',
        ...SMALL,
      ],
      {
        encoding: 'utf8',
        env: { ...process.env, D: disk, OUT: join(folder, `copy-${size}`), NODE: process.execPath, MAIN },
      },
    );
    return { status, stdout, stderr };
  }

  test.each([
    ['no checkpoint', '4m', /step-2\.partial\/.*: no space left on the disk.*there is no older checkpoint/],
    [
      'the second checkpoint',
      '8m',
      /step-4\.partial\/.*: no space left on the disk.*the checkpoint of step 2 is kept/,
    ],
  ])('whose disk holds %s says so, and goes on where there is room', async (_, size, sentence) => {
    const { status, stdout, stderr } = onDisk(
      size,
      `steptrain ${RUN.join(' ')} --output "$D/run" "$@" 2> "$D/../err" && exit 9 || echo "ended $?"
       tail -n 1 "$D/../err"
       find "$D/run" -name '*.partial' -o -name '*.tmp-*'
       mount -o remount,size=64m "$D"
       steptrain run --resume "$D/run" 2>&1
       cp -r "$D/run" "$OUT"`,
    );
    expect(status, stderr).toBe(0);
    const [ended, said, ...rest] = stdout.split('\n');
    expect(ended).toBe('ended 1');
    expect(said).toMatch(sentence);
    // Nothing half-written lies there.
    expect(rest[0]).not.toMatch(/partial|tmp-/);
    expect(await result(join(folder, `copy-${size}`))).toEqual(whole);
  });

  test('that begins twice in one directory does so once, and the other is refused', async () => {
    const run = join(folder, 'two');
    const both = await Promise.all([0, 1].map(() => steptrain([...RUN, '--output', run, ...SMALL])));
    expect(both.map(({ code }) => code).sort()).toEqual([0, 1]);
    const refused = both.find(({ code }) => code === 1);
    expect(refused?.err.trim()).toMatch(/^\S+ already holds files; choose another directory, or continue.*$/);
    expect(await result(run)).toEqual(whole);
  });

  test('in a read-only file system is refused before it trains, new and resumed, and so is its page', () => {
    const { status, stdout } = onDisk(
      '8m',
      `cp -r "$D/../whole" "$D/old"
       mount -o remount,ro "$D"
       steptrain ${RUN.join(' ')} --output "$D/new" "$@" 2>&1 && exit 9 || echo "ended $?"
       steptrain run --resume "$D/old" 2>&1 && exit 9 || echo "ended $?"
       steptrain report "$D/old" 2>&1 && exit 9 || echo "ended $?"
       steptrain inspect run "$D/old" > /dev/null`,
    );
    expect(status).toBe(0);
    expect(stdout.trim().split('\n')).toEqual([
      expect.stringMatching(/cannot make the run directory .*\/new: the file system is read-only$/),
      'ended 1',
      expect.stringMatching(/cannot write .*\/old\/\.lock: the file system is read-only$/),
      'ended 1',
      expect.stringMatching(/cannot write .*\/old\/report\.html: the file system is read-only$/),
      'ended 1',
    ]);
  });
});

const compiler = spawnSync('g++', ['--version'], { env: { ...process.env, LD_PRELOAD: '' } }).status === 0;
if (!compiler) console.warn('no g++: the tests of a disk that is full for one file are skipped');

const SOLVING = {
  method: 'ppo',
  model: { base: 'word-problems-misread', dtype: 'f32' },
  lora: { r: 4, lora_alpha: 8, lora_dropout: 0 },
  data: { source: 'word_problems', word_problems: { samples: 24, levels: [1] }, max_length: 256 },
  rollout: { num_generations: 2, max_new_tokens: 16, template: '{problem}\n' },
  reward: { rule: { weight: 1 } },
  ppo: { algorithm: 'grpo', learning_rate: 1e-3, rollout_batch: 3, max_iterations: 4, save_steps: 2 },
  run: { device: 'cpu', threads: 1, logging_steps: 1 },
  eval: { max_samples: 2 },
};

describe.skipIf(!compiled || !compiler)('a run whose disk is full (needs dist/: npm run build)', () => {
  let folder: string;
  let shim: string;
  const begin = { sft: [...RUN, ...SMALL], solving: ['run', ''] };
  type Kind = keyof typeof begin;
  const whole = new Map<Kind, object>();
  /** Everything that a run ends with and another of the same recipe must have too. */
  const result = async (run: string) => ({
    metrics: await metrics(run),
    adapter: tensors(join(run, 'adapter', 'adapter_model.safetensors')),
    texts: ['samples.jsonl', 'eval.json', 'verdicts.jsonl', 'problems.jsonl', 'adapter/tokenizer.json'].map(
      (name) => existsSync(join(run, name)) && readFileSync(join(run, name), 'utf8'),
    ),
  });
  const unfinished = (run: string) =>
    readdirSync(run, { recursive: true }).filter((name) => /partial|\.tmp-/.test(String(name)));
  /** With a disk that is full for files of this name once `after` bytes have been written to them. */
  const full = (name: string, after: number, args: readonly string[]) =>
    spawnSync(process.execPath, [MAIN, ...args], {
      encoding: 'utf8',
      env: {
        ...process.env,
        LD_PRELOAD: [process.env.LD_PRELOAD, shim].filter(Boolean).join(' '),
        NO_SPACE: name,
        NO_SPACE_AFTER: String(after),
      },
    });

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'steptrain-no-space-'));
    shim = join(folder, 'no-space.so');
    const source = join(import.meta.dirname, 'no-space.cc');
    const built = spawnSync('g++', ['-std=c++20', '-shared', '-fPIC', '-o', shim, source], {
      encoding: 'utf8',
      env: { ...process.env, LD_PRELOAD: '' },
    });
    expect(built.status, built.stderr).toBe(0);
    const recipe = join(folder, 'solving.yaml');
    writeFileSync(recipe, JSON.stringify(SOLVING));
    begin.solving[1] = recipe;
    for (const kind of ['sft', 'solving'] as const) {
      const run = join(folder, kind);
      const { code, err } = await steptrain([...begin[kind], '--output', run]);
      expect(code, err).toBe(0);
      whole.set(kind, await result(run));
    }
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.each<[Kind, string, number, boolean]>([
    ['sft', '.lock', 0, false],
    ['sft', 'config.yaml', 0, false],
    ['sft', 'inputs.json', 0, false],
    ['sft', 'memory.json', 0, false],
    ['sft', 'metrics.jsonl', 0, false],
    ['sft', 'metrics.jsonl', 1500, true],
    ['sft', 'tensorboard', 900, true],
    ['sft', 'adapter/adapter_model.safetensors', 1e5, true],
    ['sft', 'adapter/tokenizer.json', 0, true],
    ['sft', 'adapter/steptrain.json', 0, true],
    ['sft', 'verdicts.jsonl', 2000, true],
    ['sft', 'eval.json', 4096, true],
    ['solving', 'samples.jsonl', 0, true],
    ['solving', 'samples.jsonl', 1000, true],
    ['solving', 'problems.jsonl', 0, true],
  ])(
    'for %s: %s after %i bytes says so in a sentence and loses nothing',
    async (kind, name, after, hasBegun) => {
      // Its name has none of theirs.
      const run = mkdtempSync(join(folder, 'run-'));
      rmSync(run, { recursive: true });
      const { status, stderr } = full(name, after, [...begin[kind], '--output', run]);
      expect(status, stderr).toBe(1);
      const lines = stderr.trim().split('\n');
      expect(lines.at(-1)).toMatch(
        /^cannot write .*: no space left on the disk; free some, or write elsewhere$/,
      );
      expect(lines.at(-1)).toContain(join(run, name));
      expect(stderr).not.toMatch(/\n +at /);
      expect(existsSync(run)).toBe(hasBegun);
      if (!hasBegun) return;
      expect(unfinished(run)).toEqual([]);
      const hasCheckpoint =
        existsSync(join(run, 'checkpoints')) && readdirSync(join(run, 'checkpoints')).length > 0;
      const go = hasCheckpoint ? 'To resume' : 'There is no checkpoint yet; to begin the run again';
      expect(lines.at(-2)).toMatch(new RegExp(`^${go}: (?:npx steptrain|node \\S+) run --resume ${run}$`));
      const again = await steptrain(['run', '--resume', run]);
      expect(again.code, again.err).toBe(0);
      expect(await result(run)).toEqual(whole.get(kind));
    },
  );

  test('for its page alone ends well and says how to get the page', async () => {
    const run = join(folder, 'page');
    const { status, stderr } = full('report.html', 4096, [...begin.sft, '--output', run]);
    expect(status, stderr).toBe(0);
    expect(stderr).toMatch(
      /there is no report: cannot write .*report\.html: no space left .*; (?:npx steptrain|node \S+) report .*\/page tries again/,
    );
    expect(await result(run)).toEqual(whole.get('sft'));
    expect(unfinished(run)).toEqual([]);
    expect((await steptrain(['report', run])).code).toBe(0);
  });
});
