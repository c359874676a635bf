// The check of a GPU: what it packs and runs is rehearsed by npm run test:device; here, what it reads and what it writes.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, inject, test } from 'vitest';
import { deviceCases } from '../../bench/device-groups.js';
import { gpus } from '../cuda/gpu.js';

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

describe('the cases of the check of a GPU', () => {
  test('tell of every successor of a kernel, and of no other', () => {
    const rows = /kNames\[\] = \{(.*?)\};/s.exec(readFileSync(path('cuda/runtime/choice.cc'), 'utf8'))?.[1];
    const names = [...(rows ?? '').matchAll(/"(\w+)"/g)].map(([, name]) => name);
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
  // Of two calls on an H100, with some of their lines: device-out/first ended early, second was whole.
  const [first, second] = [path('test/scripts/device-out/first'), path('test/scripts/device-out/second')];
  const FIRST = 'nvidia-h100-2026-11-26.json';
  const SECOND = 'nvidia-h100-2026-11-26-2.json';
  const THIRD = 'nvidia-h100-2026-11-26-3.json';
  let results: string;
  beforeEach(() => {
    results = mkdtempSync(join(inject('folder'), 'results-'));
  });
  const report = (...outs: string[]) =>
    spawnSync(process.execPath, [path('scripts/device/report.mjs'), ...outs, '--results', results], {
      encoding: 'utf8',
    });
  const read = (name: string) => JSON.parse(readFileSync(join(results, name), 'utf8'));
  const recorded = (lines: readonly object[], end = '\n') => {
    const out = mkdtempSync(join(inject('folder'), 'out-'));
    writeFileSync(join(out, 'lines.jsonl'), `${lines.map((line) => JSON.stringify(line)).join('\n')}${end}`);
    return out;
  };
  const machine = (gpu: string, started = '2026-11-26T18:00:00.000Z') => ({ kind: 'machine', gpu, started });
  const H100 = 'NVIDIA H100 80GB HBM3';
  const product = (ms: number) => ({
    kind: 'bench',
    side: 'ours',
    group: 'gemm',
    op: 'linear',
    name: '8192³',
    ms,
  });

  test('writes what failed, what was found and what is faster', () => {
    const { stdout, status } = report(first);
    expect(status).toBe(0);
    expect(read(FIRST).machine).toMatchObject({ gpu: H100, commit: '9d08bf8' });
    expect(read(FIRST).tests.map(({ set, passed, failed }: Tests) => [set, passed, failed.length])).toEqual([
      ['ops', 3, 1],
      ['choice-partial_sums', 0, 1],
      ['choice-few_rows', 0, 1],
    ]);
    expect(stdout).toMatch(
      /^ops: 3 of 4 tests passed\n {2}failed: attention over several tiles .*timed out/m,
    );
    expect(stdout).toContain('ops: ended with 124 after 90 s');
    expect(stdout).toContain('main: not begun');
    expect(stdout).toMatch(
      /few_rows +│ linear +│ 33 × 3584 → 18944 +│ 0\.1119 +│ 0\.05853 +│ 1\.911 +│ successor/,
    );

    const { stdout: then } = report(second);
    const { sanitizers, bench, main } = read(SECOND);
    expect(sanitizers.map(({ name, errors }: { name: string; errors: number }) => [name, errors])).toEqual([
      ['memcheck-gemm', 0],
      ['racecheck-attention', 20],
      ['initcheck-attention', -1],
    ]);
    expect(bench).toContainEqual(expect.objectContaining({ op: 'linear', name: '8192³', ms: 1.5942 }));
    expect(main).toMatchObject({ method: 'stepamc', metrics: { n: 4000, accuracy: 0.73175 } });
    expect(then).toMatch(/Qwen2\.5-7B shape.* │ 249\.8 │ Liger, adapters in bf16 │ 276\.4 │ 1\.11 +│/);
    expect(then).toMatch(/racecheck-attention: 20 findings; .*sm90_attention_keys_kernel<\(int\)64>/);
    expect(then).toContain('initcheck-attention: no summary');
    expect(then).toContain(`beside ${FIRST}\n`);
  });

  test('marks what became slower since the newest earlier results, and replaces a report of the same run', () => {
    report(second);
    const step = 'Qwen2.5-0.5B shape, 8 × 1024 tokens, r = 16';
    const later = recorded(
      [machine(H100), product(1.7), { ...product(66), group: 'step', op: 'step', name: step }],
      '\n{"kind":"ben',
    );
    for (let again = 0; again < 2; again++) {
      const { stdout, stderr } = report(later);
      expect(stdout).toMatch(/8192³ +│ 1\.7 +│ +│ – +│ +│ 1\.594 +│ 6\.6 % !/);
      expect(stdout).toMatch(
        /r = 16 │ 66 +│ adapters in bf16 \(2026-11-26\) │ 162\.9 │ 2\.47 +│ 68\.01 +│ -3\.0 % +│/,
      );
      expect(stderr).toMatch(/^report\.mjs: 1 lines of .*lines\.jsonl cannot be read\n$/);
      expect(readdirSync(results).sort()).toEqual([SECOND, FIRST].sort());
    }
  });

  test('sets attention beside the kernels that are the default since the newest run, not those that ran there', () => {
    for (const name of [FIRST, SECOND, THIRD]) cpSync(path(`bench/results/${name}`), join(results, name));
    const forward = { kind: 'bench', side: 'ours', group: 'attention', op: 'forward' };
    const { stdout } = report(
      recorded([
        machine(H100, '2026-11-27T01:00:00.000Z'),
        { ...forward, name: '8 × 2048, 16 heads, D = 128', ms: 0.33 },
        { ...forward, name: '1 × 16384, 16 heads, D = 128', ms: 1.9 },
      ]),
    );
    expect(stdout).toMatch(/8 × 2048, 16 heads, D = 128 +│ 0\.33 │ cuDNN .* │ 0\.3008 │ 9\.7 % !/);
    expect(stdout).toMatch(/1 × 16384, 16 heads, D = 128 │ 1\.9 +│ cuDNN .* │ 1\.922 +│ -1\.1 %/);
    const { bench, choice, former }: Kept = JSON.parse(readFileSync(path(`bench/results/${THIRD}`), 'utf8'));
    for (const { op, name, winner, successor } of choice.filter((one) => one.winner === 'successor')) {
      const same = (one: Named) => one.op === op && one.name === name;
      expect(bench.filter(same), `${op} ${name} ${winner}`).toMatchObject([{ ms: successor[0] }]);
      expect(former.filter(same)).toHaveLength(1);
    }
  });

  test('takes an earlier result that tells its day alone as begun before those that tell the time', () => {
    const { machine: of, ...rest } = JSON.parse(readFileSync(path(`bench/results/${FIRST}`), 'utf8'));
    expect(of.started).toBeUndefined();
    writeFileSync(join(results, FIRST), JSON.stringify({ machine: of, ...rest }));
    const { stdout } = report(recorded([machine(H100), product(1.5)]));
    expect(stdout).toMatch(/8192³ │ 1\.5 │ .* │ 1\.573 +│ -4\.7 % +│/);
    expect(stdout).toContain(`${SECOND}, beside ${FIRST}\n`);
  });

  test('takes several calls of one GPU as one report, but not those of two', () => {
    expect(report(first, second).status).toBe(0);
    expect(readdirSync(results)).toEqual([FIRST]);
    expect(report(first, recorded([machine('NVIDIA L4')])).stderr).toBe(
      `report.mjs: these are of several GPUs, ${H100} and NVIDIA L4: give the folders of one\n`,
    );
  });

  test('compares a GPU with itself alone, whatever its name begins with', () => {
    report(second);
    for (const [gpu, file] of [
      ['NVIDIA H100 PCIe', 'nvidia-h100-pcie-2026-11-26.json'],
      ['NVIDIA GeForce RTX 4090', 'nvidia-geforce-rtx-4090-2026-11-26.json'],
      ['NVIDIA GeForce RTX 5090', 'nvidia-geforce-rtx-5090-2026-11-26.json'],
      ['NVIDIA H100 96GB HBM3', SECOND], // the same words, other memory
    ] as const) {
      expect(report(recorded([machine(gpu), product(9)])).stdout).toContain(`${file}, beside none before`);
      expect(read(file).machine.gpu).toBe(gpu);
    }
  });

  test.each([
    ['cut in half', '{"machine": {"started": "2026-11-2'],
    ['of another schema', JSON.stringify({ results: [{ case: 'gemm', seconds: 1 }] })],
    ['no object', 'null'],
  ])('leaves out an earlier result that is %s, names it and keeps it', (_, text) => {
    writeFileSync(join(results, FIRST), text);
    const { status, stderr, stdout } = report(second);
    expect(status).toBe(0);
    expect(stderr).toBe(
      `report.mjs: ${join(results, FIRST)} is no whole report of this script; it is left out\n`,
    );
    expect(stdout).toContain(`results in ${join(results, SECOND)}, beside none before`);
    expect(readFileSync(join(results, FIRST), 'utf8')).toBe(text);
  });

  test('reads earlier results whose cases have other fields', () => {
    const older = {
      machine: { gpu: H100, started: '2026-11-25T00:00:00.000Z' },
      bench: [
        { op: 'linear', name: '8192³', ms: null, rivals: { setting: 'plain', ms: 1 } },
        { op: 'linear', name: '8192³' },
      ],
    };
    writeFileSync(join(results, 'nvidia-h100-2026-11-25.json'), JSON.stringify(older));
    const { status, stdout } = report(recorded([machine(H100), product(1.7)]));
    expect(status).toBe(0);
    expect(stdout).toMatch(/8192³ │ 1\.7 │ +│ – +│ +│ – +│/);
  });

  test('says that the GPU fell silent, and what a part without a word of its own was', () => {
    const { stdout, status } = report(
      recorded([
        machine(H100),
        { kind: 'gpu', after: 'racecheck-gemm', state: 'no answer' },
        { kind: 'arrivals', same: 'no', cases: 5, differ: 'window,long' },
        { kind: 'choice', kernels: 'tiles', op: 'linear', name: 'x' },
        { kind: 'sanitizer', name: 'racecheck-gemm', errors: 3, kernels: 'a_kernel\nb_kernel<(int)64>' },
      ]),
    );
    expect(status).toBe(0);
    expect(stdout).toContain('after racecheck-gemm the GPU did not answer');
    expect(stdout).toContain('every lane arrives: other bits (window,long)\n');
    expect(stdout).toContain('racecheck-gemm: 3 findings in a_kernel, b_kernel<(int)64>');
  });

  test('says what it needs', () => {
    expect(report().stderr).toBe('report.mjs: name the folder that scripts/device/run.sh wrote\n');
    expect(report(join(results, 'none')).stderr).toMatch(
      /^report\.mjs: there is no .*lines\.jsonl: give a folder/,
    );
    expect(report(recorded([product(1)])).stderr).toBe(
      'report.mjs: no line says which machine it was, and when\n',
    );
    results = join(second, 'lines.jsonl');
    expect(report(first).stderr).toBe(
      `report.mjs: ${results} cannot be written (EEXIST): name another folder by --results\n`,
    );
  });
});

interface Named {
  readonly op: string;
  readonly name: string;
}

interface Kept {
  readonly bench: readonly Named[];
  readonly former: readonly Named[];
  readonly choice: readonly (Named & { readonly winner: string; readonly successor: readonly number[] })[];
}

interface Tests {
  readonly set: string;
  readonly passed: number;
  readonly failed: readonly object[];
}

describe('machine.mjs', () => {
  const told = (...args: string[]) =>
    JSON.parse(
      spawnSync(process.execPath, [path('scripts/device/machine.mjs'), ...args], { encoding: 'utf8' }).stdout,
    );

  test('knows a machine without nvidia-smi', () => {
    expect(told('', '')).toMatchObject({
      kind: 'machine',
      gpu: gpus[0] ?? 'none',
      node: process.versions.node,
    });
  });

  test.skipIf(gpus.length > 0)('takes the first of several GPUs that nvidia-smi lists, and names all', () => {
    const listed =
      'NVIDIA H100 PCIe, 580.159.04, 1755 MHz, 81559 MiB\nNVIDIA L4, 580.159.04, 2040 MHz, 23034 MiB';
    expect(told(listed, 'torch 2.11.0')).toMatchObject({
      gpu: 'NVIDIA H100 PCIe',
      clock: '1755 MHz',
      gpus: ['NVIDIA H100 PCIe', 'NVIDIA L4'],
      python: 'torch 2.11.0',
    });
  });
});

/** A tree with the scripts alone, and programs that stand in for those on the PATH. */
function tree(programs: Readonly<Record<string, string>>) {
  const root = mkdtempSync(join(inject('folder'), 'tree-'));
  cpSync(path('scripts/device'), join(root, 'scripts/device'), { recursive: true });
  mkdirSync(join(root, 'path'));
  for (const [name, text] of Object.entries(programs))
    writeFileSync(join(root, 'path', name), `#!/bin/bash\n${text}\n`, { mode: 0o755 });
  const started = (script: string, ...args: string[]) =>
    spawnSync('bash', [join(root, 'scripts/device', script), ...args], {
      encoding: 'utf8',
      env: { ...process.env, PATH: `${join(root, 'path')}:${process.env.PATH}` },
    });
  return { root, started };
}

describe('pack.sh', () => {
  const pack = (...args: string[]) =>
    spawnSync('bash', [path('scripts/device/pack.sh'), ...args], { encoding: 'utf8' });

  test('refuses what it does not know before it begins', () => {
    expect(pack().stderr).toBe('pack.sh: name the file to write: scripts/device/pack.sh FILE\n');
    expect(pack('x', '--addon', 'none').stderr).toBe("pack.sh: --addon: there is no file 'none'\n");
    expect(pack('x', '--adon', path('package.json')).stderr).toBe(
      "pack.sh: no option '--adon'; expected --addon, --every-lane or --wheel\n",
    );
  });

  test('links a second addon, in which the kernel of keys is compiled for the arrival of every lane', () => {
    const { root } = tree({});
    const build = join(root, 'build');
    mkdirSync(join(build, 'CMakeFiles/steptrain.dir'), { recursive: true });
    const linked = () =>
      spawnSync(process.execPath, [join(root, 'scripts/device/every-lane.mjs'), join(root, 'out.node')], {
        encoding: 'utf8',
      });
    const commands = (files: readonly string[]) =>
      writeFileSync(
        join(build, 'compile_commands.json'),
        JSON.stringify(
          files.map((file) => ({
            file: join(root, file),
            command: `echo compile ${file} -o a.o > said; touch a.o.every-lane.o; true -o a.o`,
          })),
        ),
      );
    commands(['cuda/rope.cu']);
    expect(linked().stderr).toContain('no command that compiles cuda/attention/sm90_backward_keys.cu');
    commands(['cuda/rope.cu', 'cuda/attention/sm90_backward_keys.cu']);
    const link = join(build, 'CMakeFiles/steptrain.dir/link.txt');
    writeFileSync(link, 'cat -o Release/steptrain.node b.o\n');
    expect(linked().stderr).toContain('a.o is none of what the addon is linked from');
    writeFileSync(link, 'echo -o Release/steptrain.node b.o a.o c.o >> said\n');
    expect(linked().status).toBe(0);
    expect(readFileSync(join(build, 'said'), 'utf8')).toBe(
      `compile cuda/attention/sm90_backward_keys.cu -o a.o.every-lane.o\n-o ${join(root, 'out.node')} b.o a.o.every-lane.o c.o\n`,
    );
  });

  test('leaves no file where it would be larger than 40 MiB', () => {
    // Nothing is built, stripped or compressed, and Node is this script.
    const { root, started } = tree({
      strip: '',
      xz: 'exec cat',
      node: `case $1 in
        scripts/build.mjs) ;;
        -p) [[ $2 == process.execPath ]] && echo "$0" || echo '{}' ;;
        *) exec ${process.execPath} "$@" ;;
      esac`,
    });
    writeFileSync(join(root, 'package.json'), '{"dependencies": {}}');
    for (const folder of ['node_modules/vitest', 'dist', 'build/ts'])
      mkdirSync(join(root, folder), { recursive: true });
    writeFileSync(join(root, 'node_modules/.package-lock.json'), '{"packages": {"node_modules/vitest": {}}}');
    const [addon, file] = [join(root, 'addon.node'), join(root, 'pack.tar.xz')];
    writeFileSync(addon, Buffer.alloc(39 << 20));
    expect(started('pack.sh', file, '--addon', addon)).toMatchObject({
      status: 0,
      stdout: `${file}: 39.0 MiB\n`,
    });

    rmSync(file);
    writeFileSync(addon, Buffer.alloc(41 << 20));
    expect(started('pack.sh', file, '--addon', addon)).toMatchObject({
      status: 1,
      stderr: 'pack.sh: the pack would be of 41 MiB, more than 40\n',
    });
    expect(readdirSync(root).filter((name) => name.startsWith('pack.tar'))).toEqual([]);
  });
});

describe('a rehearsal', () => {
  const judged = (parts: readonly string[], ...lines: readonly object[]) => {
    const file = join(mkdtempSync(join(inject('folder'), 'lines-')), 'lines.jsonl');
    writeFileSync(file, lines.map((line) => JSON.stringify(line)).join('\n'));
    return spawnSync(process.execPath, [path('scripts/device/rehearsed.mjs'), file, ...parts], {
      encoding: 'utf8',
    });
  };
  const rival = (error: string) => ({ kind: 'bench', side: 'rival', error });
  const part = (name: string, code: number) => ({ kind: 'part', name, code });

  test.each([
    [rival("absent: No module named 'torch'")],
    [rival('AssertionError: Torch not compiled with CUDA enabled')],
    [part('sanitize', 127)],
    [part('racecheck-arrivals', 127)],
    [{ kind: 'arrivals', same: 'yes' }],
  ])('forgives %j', (line) => expect(judged([], line).status).toBe(0));

  test.each([
    [rival("absent: No module named 'peers'")],
    [rival('TypeError: bench() missing 1 required positional argument')],
    [rival('not begun: no time left')],
    [part('sanitize', 1)],
    [part('memcheck-gemm', 127)],
    [part('ours-gemm', 124)],
    [{ kind: 'arrivals', same: 'no' }],
    [{ kind: 'bench', side: 'ours', error: 'x' }],
    [{ kind: 'test', state: 'failed', name: 'x' }],
  ])('does not forgive %j', (line) => {
    const { status, stderr } = judged([], line);
    expect(status).toBe(1);
    expect(stderr).toContain(`kind: '${line.kind}'`);
  });

  test('misses what a part did not leave', () => {
    expect(judged(['ours:gemm', 'arrivals'], { kind: 'bench', side: 'ours' }).stderr).toBe(
      'arrivals left no line of kind arrivals\n',
    );
  });
});

describe('run.sh', () => {
  const run = (...args: string[]) =>
    spawnSync('bash', [path('scripts/device/run.sh'), ...args], { encoding: 'utf8' });
  const out = () => mkdtempSync(join(inject('folder'), 'out-'));

  test('refuses what it does not know before it begins', () => {
    expect(run().stderr).toMatch(/^run\.sh: name the folder/);
    expect(run('--tinny', 'x').stderr).toBe("run.sh: no option '--tinny'; see --help\n");
    expect(run('--seconds', '5m', out()).stderr).toBe("run.sh: --seconds takes a whole number, not '5m'\n");
    expect(run(out(), 'test').stderr).toBe("run.sh: no part 'test'; see --help\n");
    expect(run(out(), 'rival:ops,ligre').stderr).toBe(
      "run.sh: rival has no 'ligre'; expected ops step liger decode prefill\n",
    );
    expect(run(out(), 'main:quickly').stderr).toBe("run.sh: main has no 'quickly'; expected no choice\n");
    expect(run('--pack', 'none', out()).stderr).toBe('run.sh: there is no file none\n');
    expect(run('--help').stdout).toMatch(/^Checks a GPU, part by part/);
  });

  test('refuses a folder that it cannot write', () => {
    const folder = out();
    mkdirSync(join(folder, 'lines.jsonl'));
    for (const unwritable of [folder, path('package.json'), '/proc/none'])
      expect(run(unwritable).stderr).toBe(
        `run.sh: ${unwritable} is no folder that can be written: name another for the results\n`,
      );
  });

  test('goes on after a part that hangs and leaves processes, one that crashes the driver, and half a line', () => {
    const { root, started } = tree({
      'nvidia-smi': '[[ $1 == -L ]] && sleep 1000; echo "NVIDIA L4, 580.159.04, 2040 MHz, 23034 MiB"',
      sleeper: 'trap "" TERM; echo $$ > "$1/pid"; sleep 1000 & sleep 1000',
    });
    const folder = out();
    writeFileSync(join(folder, 'lines.jsonl'), '{"kind":"tes');
    for (const [name, text] of [
      ['hangs', 'sleeper "$1"'],
      ['talks', 'echo "it works" > "$1/said"'],
      ['dies', 'kill -SEGV $$'],
    ] as const) {
      mkdirSync(join(root, 'trials', name), { recursive: true });
      writeFileSync(join(root, 'trials', name, 'run.sh'), `#!/bin/bash\n${text}\n`, { mode: 0o755 });
    }
    const { stdout, status } = started('run.sh', '--seconds', '10', folder, 'trials');
    expect(status).toBe(1);
    expect(stdout).toMatch(/hangs: stopped at its limit/);
    const lines = readFileSync(join(folder, 'lines.jsonl'), 'utf8').trim().split('\n');
    const found = lines.slice(1).map((line) => JSON.parse(line));
    expect(found[0]).toMatchObject({ kind: 'machine', gpu: 'NVIDIA L4', clock: '2040 MHz' });
    const code = Object.fromEntries(
      found.filter(({ kind }) => kind === 'part').map((part) => [part.name, part.code]),
    );
    expect(code).toEqual({ 'trial-hangs': 124, 'trial-talks': 0, 'trial-dies': 139 });
    expect(found.filter(({ kind }) => kind === 'gpu').map(({ after }) => after)).toEqual(
      expect.arrayContaining(['trial-dies']),
    );
    const kept = (name: string) =>
      spawnSync('tar', ['-xzOf', join(folder, 'trials.tar.gz'), `trials/${name}`], { encoding: 'utf8' })
        .stdout;
    expect(kept('talks/said')).toBe('it works\n');
    expect(() => process.kill(Number(kept('hangs/pid')), 0)).toThrow('ESRCH');
  });
});
