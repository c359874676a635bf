// A disk that is really full, and one that is read-only: a small file system of our own. One sentence, nothing lost, and the resumed run
// ends with the bits of one that had room.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, MAIN, metrics, steptrain, tensors } from './program.js';

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
  }, 60_000);
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
  ])(
    'whose disk holds %s says so, and goes on where there is room',
    async (_, size, sentence) => {
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
    },
    120_000,
  );

  test('into a read-only file system is refused before it trains', () => {
    const { status, stdout } = onDisk(
      '1m',
      `mount -o remount,ro "$D"; steptrain ${RUN.join(' ')} --output "$D/run" "$@" 2>&1`,
    );
    expect(status).toBe(1);
    expect(stdout.trim().split('\n').at(-1)).toMatch(/disk-\w+\/run.*read-only/);
    expect(stdout).not.toMatch(/step 1\/|\n +at /);
  }, 60_000);
});
