// scripts/gpu-check.sh on the processor: the results that it writes, also if parts fail or are stopped.
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gpus } from '../cuda/gpu.js';
import { compiled } from '../e2e/program.js';

const SCRIPT = fileURLToPath(new URL('../../scripts/gpu-check.sh', import.meta.url));

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-gpu-check-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Ended {
  readonly code: number | null;
  readonly out: string;
}

function check(args: readonly string[], terminateAfter?: number, path = ''): Promise<Ended> {
  return new Promise((resolve) => {
    const env = {
      ...process.env,
      PATH: `${path}${process.env.PATH}`,
      STEPTRAIN_RESULTS: join(folder, 'results'),
      STEPTRAIN_CHECK_WORK: join(folder, 'work'),
    };
    const child = spawn('sh', [SCRIPT, ...args], { env });
    const timer = terminateAfter && setTimeout(() => child.kill('SIGTERM'), terminateAfter);
    let out = '';
    child.stdout.on('data', (text) => (out += text));
    child.stderr.on('data', (text) => (out += text));
    child.on('close', (code) => {
      clearTimeout(timer);
      resolve({ code, out });
    });
  });
}

interface Part {
  readonly outcome: string;
  readonly headline?: string;
  readonly runs?: Record<string, { readonly steps: number }>;
}

async function report(): Promise<Record<string, Part>> {
  const names = await readdir(join(folder, 'results'));
  const json = names.filter((name) => name.endsWith('.json'));
  expect(json).toHaveLength(1);
  return JSON.parse(await readFile(join(folder, 'results', json[0] as string), 'utf8')).parts;
}

describe.skipIf(!compiled)('gpu-check.sh (needs dist/: npm run build)', () => {
  test('lists its parts and refuses an unknown one', async () => {
    const listed = await check(['--list']);
    expect(listed.code).toBe(0);
    expect(listed.out).toMatch(/^ops +4 min {2}/);
    const unknown = await check(['ops', 'opps']);
    expect(unknown).toEqual({ code: 1, out: "gpu-check: no part 'opps'; see --list\n" });
  });

  test.skipIf(gpus.length > 0)(
    'says why the addon finds no GPU, and builds it again if there is one',
    async () => {
      const none = await check(['ops']);
      expect(none.out).toMatch(
        /^gpu-check: steptrain cannot use the GPU: (this addon|its NVIDIA driver|this machine) .+\n$/,
      );
      // A machine with a GPU whose toolkit does not work.
      const tools = join(folder, 'tools');
      await mkdir(tools);
      for (const [tool, status] of Object.entries({ 'nvidia-smi': 0, nvcc: 0, cmake: 1 }))
        await writeFile(join(tools, tool), `#!/bin/sh\necho ${tool} ran\nexit ${status}\n`, { mode: 0o755 });
      const failed = await check(['ops'], undefined, `${tools}:`);
      expect(failed.code).toBe(1);
      expect(failed.out).toMatch(
        /^gpu-check: (.+); building the addon with this machine's toolkit\ncmake ran\ngpu-check: the addon could not be built; \1\n$/,
      );
    },
  );

  test('reports each part by one line and one entry, and a second run replaces the entry', async () => {
    const tiny = ['--tiny', '--device', 'cpu'];
    const first = await check([...tiny, 'pretrain-25m', 'stepamc-25m']);
    expect(first.out).toMatch(/^pretrain-25m: passed: .*\nstepamc-25m: passed: .*f1_macro.*\n$/);
    expect(first.code).toBe(0);
    const before = await report();
    expect(before['pretrain-25m']?.runs?.['pretrain-25m']?.steps).toBe(2);

    await rm(join(folder, 'work', 'runs', 'pretrain-25m'), { recursive: true });
    const second = await check([...tiny, 'stepamc-25m']);
    expect(second).toEqual({
      code: 1,
      out: expect.stringMatching(
        /^stepamc-25m: failed \(exit code 1\): no model of pretrain-25m here: run that part first/,
      ),
    });
    const after = await report();
    expect(after['pretrain-25m']).toEqual(before['pretrain-25m']);
    expect(after['stepamc-25m']?.runs?.['stepamc-25m']?.steps).toBeUndefined();
  }, 120_000);

  test('a stopped part leaves its entry, and no further part runs', async () => {
    const { code, out } = await check(['--device', 'cpu', 'pretrain-25m', 'prm800k'], 4000);
    expect(out).toMatch(/^pretrain-25m: stopped from outside after \d+ s/);
    expect(out).not.toMatch(/prm800k/);
    expect(code).toBe(1);
    expect((await report())['pretrain-25m']?.outcome).toMatch(/^stopped from outside/);
    expect((await readdir(join(folder, 'results'))).some((name) => name.endsWith('-logs.tar.gz'))).toBe(true);
  }, 60_000);
});
