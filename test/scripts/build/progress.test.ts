// What a compilation says of itself. The module looks for the terminal when it is loaded, so it runs in a process of its own.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';

const script = new URL('../../../scripts/build/progress.mjs', import.meta.url).href;
const { duration, outdated, unitName } = await import(script);

/** What `Progress` writes to stderr while make prints `lines`. */
function said(units: readonly object[], processors: number, lines: readonly string[]): string {
  const program = `
    import { Progress } from '${script}';
    let now = 0;
    performance.now = () => now;
    const progress = new Progress(${JSON.stringify(units)}, ${processors});
    for (const line of ${JSON.stringify(lines)}) {
      if (line.startsWith('+')) now += 1000 * Number(line);
      else progress.line(line);
    }
    progress.end();`;
  const { stderr, status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
  });
  expect(status).toBe(0);
  return stderr;
}

/** The seconds that are left by its account at each tick. */
function ticks(units: readonly object[], processors: number, lines: readonly string[]): number[] {
  const program = `
    import { Progress } from '${script}';
    let now = 0;
    performance.now = () => now;
    const progress = new Progress(${JSON.stringify(units)}, ${processors});
    const told = [];
    for (const line of ${JSON.stringify(lines)}) {
      if (line.startsWith('+')) now += 1000 * Number(line);
      else if (line === 'tick') told.push(progress.remaining());
      else progress.line(line);
    }
    console.log(JSON.stringify(told));`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
  });
  return JSON.parse(stdout) as number[];
}

const object = (name: string) => `CMakeFiles/kernels_avx2.dir/units/${name}.cc.o`;
const unit = (name: string, seconds: number) => ({ output: object(name), seconds });
const begins = (name: string) => `[ 10%] Building CXX object ${object(name)}`;

it('says which unit of how many is compiled, and how long it takes about', () => {
  const units = ['a', 'b', 'c', 'd'].map((name) => unit(name, 100));
  const lines = [begins('a'), '+100', begins('b'), 'a warning', '+100', begins('c'), '+100', begins('d')];
  expect(said(units, 1, lines)).toBe(
    [
      'steptrain: compiling avx2/a.cc, 1 of 4, about 7 min left\n',
      'steptrain: compiling avx2/b.cc, 2 of 4, about 5 min left\n',
      'steptrain: compiling avx2/c.cc, 3 of 4, about 3 min left\n',
      'steptrain: compiling avx2/d.cc, 4 of 4, about 2 min left\n',
    ].join(''),
  );
});

it('goes by the speed of this machine, whatever was measured on another', () => {
  const units = ['a', 'b', 'c'].map((name) => unit(name, 1));
  expect(said(units, 1, [begins('a'), '+60', begins('b')])).toMatch(
    /b\.cc, 2 of 3, about (7\d|8\d|9\d) s left/,
  );
});

it.each([0.5, 1, 3])('tells the time without jumps where the machine takes %s times as long', (slowness) => {
  const seconds = [17, 14, 13, 8, 8, 17, 14, 13, 7, 5, 4, 3, 3, 1, 1, 1];
  const units = seconds.map((each, i) => unit(`u${i}`, each));
  // Two processors, each with the next unit as soon as it is free.
  const free = [0, 0];
  const begun = seconds.map((each) => {
    const at = Math.min(...free);
    free[free.indexOf(at)] = at + each * slowness;
    return at;
  });
  const end = Math.max(...free);
  const lines: string[] = [];
  for (let at = 0, next = 0; at < end; at++) {
    while (next < begun.length && begun[next]! <= at) lines.push(begins(`u${next++}`));
    lines.push('tick', '+1');
  }
  const told = ticks(units, 2, lines);
  expect(told.length).toBeGreaterThan(20);
  for (const [at, left] of told.entries()) {
    // It may fall at once, where the first units end early; it never leaps up.
    if (at > 0) expect(left - told[at - 1]!, `at ${at} s`).toBeLessThan(0.06 * end);
    // From a third on it is about right.
    if (at > end / 3) expect(Math.abs(left - (end - at)), `at ${at} s`).toBeLessThan(0.3 * end);
  }
});

it('where no line can be overwritten, writes one in half a minute at most', () => {
  const units = ['a', 'b', 'c'].map((name) => unit(name, 10));
  const text = said(units, 2, [begins('a'), '+1', begins('b'), '+28', begins('c'), '+2', begins('d')]);
  expect(text.match(/\w\.cc, \d of \d/g)).toEqual(['a.cc, 1 of 3', 'd.cc, 4 of 4']);
});

it('names durations and units', () => {
  expect([0.2, 12.4, 99, 100, 250].map(duration)).toEqual(['1 s', '12 s', '99 s', '2 min', '4 min']);
  expect(unitName('CMakeFiles/kernels_amx.dir/units/cpu_gemm.cc.o')).toBe('amx/cpu_gemm.cc');
  expect(unitName('CMakeFiles/cuda_kernels.dir/cuda/gemm/skinny.cu.o')).toBe(
    'cuda_kernels/cuda/gemm/skinny.cu',
  );
});

let build: string;
beforeEach(() => {
  build = mkdtempSync(join(tmpdir(), 'steptrain-progress-'));
});
afterEach(() => rmSync(build, { recursive: true, force: true }));

it('counts the objects that are older than what they are made of', () => {
  const target = 'CMakeFiles/core.dir';
  mkdirSync(join(build, target), { recursive: true });
  const at = (path: string, time: number, text = '') => {
    writeFileSync(join(build, path), text);
    utimesSync(join(build, path), time, time);
  };
  for (const name of ['a.cc', 'b.cc', 'shared.h']) at(name, 100);
  at(`${target}/flags.make`, 100);
  const names = ['a.cc', 'b.cc', 'c.cc'];
  const commands = names.map((name) => ({ command: `g++ -c ${name} -o ${target}/${name}.o`, file: name }));
  writeFileSync(join(build, 'compile_commands.json'), JSON.stringify(commands));
  const outdatedNames = () => outdated(build).map(({ output }: { output: string }) => unitName(output));
  expect(outdatedNames()).toEqual(['core/a.cc', 'core/b.cc', 'core/c.cc']);
  for (const name of names) {
    at(`${target}/${name}.o`, 200);
    at(`${target}/${name}.o.d`, 200, `${target}/${name}.o: ${name} \\\n ${build}/shared.h\n`);
  }
  // c.cc is gone.
  expect(outdatedNames()).toEqual(['core/c.cc']);
  at('a.cc', 300);
  expect(outdatedNames()).toEqual(['core/a.cc', 'core/c.cc']);
  at('shared.h', 300);
  expect(outdatedNames()).toHaveLength(3);
  at('a.cc', 100);
  at('shared.h', 100);
  at(`${target}/flags.make`, 300);
  expect(outdatedNames()).toHaveLength(3);
});
