// The check of a GPU: what it packs and runs is rehearsed by npm run test:device; here, what it reads and what it writes.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { deviceCases } from '../../bench/device-groups.js';

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

describe('the cases of the check of a GPU', () => {
  test('tell of every successor of a kernel, and of no other', () => {
    const rows = /kRows\[\] = \{(.*?)\n\};/s.exec(readFileSync(path('cuda/runtime/choice.cc'), 'utf8'))?.[1];
    const names = [...(rows ?? '').matchAll(/\{"(\w+)"/g)].map(([, name]) => name);
    expect(Object.keys(deviceCases().successors)).toEqual(names);
  });

  test('have names of their own, by which results are found', () => {
    for (const [group, cases] of Object.entries(deviceCases().groups)) {
      const names = cases.map(
        (item) => ('op' in item ? item.op : 'direction' in item ? item.direction : '') + item.name,
      );
      expect(new Set(names).size, group).toBe(names.length);
    }
  });
});

describe('report.mjs', () => {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-device-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const results = join(folder, 'results');
  const report = (...outs: string[]) =>
    spawnSync(process.execPath, [path('scripts/device/report.mjs'), ...outs, '--results', results], {
      encoding: 'utf8',
    });
  const read = (name: string) => JSON.parse(readFileSync(join(results, name), 'utf8'));

  beforeAll(() => {
    mkdirSync(results);
    const { stdout, status } = report(path('test/scripts/device-out'));
    writeFileSync(join(folder, 'said'), stdout);
    expect(status).toBe(0);
  });

  test('writes what failed, what was found and what is faster', () => {
    const { machine, tests, sanitizers, bench, choice, main } = read('nvidia-h100-2026-11-26.json');
    expect(machine).toMatchObject({ gpu: 'NVIDIA H100 80GB HBM3', commit: '6e409fd' });
    expect(tests).toEqual([
      {
        set: 'ops',
        passed: 1,
        failed: [{ name: 'gemm on cuda:0 > sums', errors: ['dw: expected 1 to be 2'] }],
      },
    ]);
    expect(sanitizers).toEqual([
      { tool: 'racecheck', name: 'racecheck-attention', errors: 3, first: 'Error: Race' },
    ]);
    expect(bench[0]).toMatchObject({
      op: 'linear',
      name: '8192³',
      ms: 1.6,
      rivals: [{ setting: 'plain', ms: 1.5 }],
    });
    expect(choice).toMatchObject([{ kernels: 'few_rows', winner: 'successor' }]);
    expect(main).toEqual({ method: 'stepamc', metrics: { f1_macro: 72.5 } });
    const said = readFileSync(join(folder, 'said'), 'utf8');
    expect(said).toContain('failed: gemm on cuda:0 > sums: dw: expected 1 to be 2');
    expect(said).toMatch(/linear +│ 8192³ +│ 1\.6 +│ plain +│ 1\.5 +│ 0\.94/);
    expect(said).toContain('models: ended with 124 after 60 s');
  });

  test('marks what became slower since the newest earlier results, and replaces a report of the same run', () => {
    const later = join(folder, 'later');
    mkdirSync(later);
    const lines = [
      { kind: 'machine', gpu: 'NVIDIA H100 80GB HBM3', started: '2026-11-26T18:00:00.000Z' },
      { kind: 'bench', side: 'ours', group: 'gemm', op: 'linear', name: '8192³', ms: 1.7 },
      { kind: 'bench', side: 'ours', group: 'step', op: 'step', name: 'Qwen2.5-0.5B', ms: 84 },
    ];
    writeFileSync(
      join(later, 'lines.jsonl'),
      `${lines.map((line) => JSON.stringify(line)).join('\n')}\n{"kind":"ben`,
    );
    for (let again = 0; again < 2; again++) {
      const { stdout } = report(later);
      expect(stdout).toMatch(/8192³ +│ 1\.7 +│ plain \(2026-11-26\) +│ 1\.5 +│ 0\.88 +│ 1\.6 +│ 6\.3 % !/);
      expect(stdout).toMatch(/Qwen2\.5-0\.5B +│ 84 .*│ 86 +│ -2\.3 % +│/);
      expect(readdirSync(results)).toEqual(['nvidia-h100-2026-11-26-2.json', 'nvidia-h100-2026-11-26.json']);
    }
  });

  test('says what it needs', () => {
    expect(report().stderr).toBe('report.mjs: name the folder that scripts/device/run.sh wrote\n');
    expect(report(join(folder, 'none')).stderr).toMatch(
      /^report\.mjs: there is no .*lines\.jsonl: give a folder/,
    );
  });
});

describe('pack.sh', () => {
  const pack = (...args: string[]) =>
    spawnSync('bash', [path('scripts/device/pack.sh'), ...args], { encoding: 'utf8' });

  test('refuses what it does not know before it begins', () => {
    expect(pack().stderr).toBe('pack.sh: name the file to write: scripts/device/pack.sh FILE\n');
    expect(pack('x', '--addon', 'none').stderr).toBe("pack.sh: --addon: there is no file 'none'\n");
    expect(pack('x', '--adon', path('package.json')).stderr).toBe(
      "pack.sh: no option '--adon'; expected --addon or --wheel\n",
    );
  });
});

describe('run.sh', () => {
  const run = (...args: string[]) =>
    spawnSync('bash', [path('scripts/device/run.sh'), ...args], { encoding: 'utf8' });

  test('refuses what it does not know before it begins', () => {
    expect(run().stderr).toMatch(/^run\.sh: name the folder/);
    expect(run('--tinny', 'x').stderr).toBe("run.sh: no option '--tinny'; see --help\n");
    expect(run(mkdtempSync(join(tmpdir(), 'steptrain-device-')), 'test').stderr).toBe(
      "run.sh: no part 'test'; see --help\n",
    );
    expect(run('--help').stdout).toMatch(/^Checks a GPU, part by part/);
  });
});
