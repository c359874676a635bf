// A reporter of vitest: one line at the end that says how many tests were skipped, and what they need that this machine lacks.
import { existsSync, readFileSync } from 'node:fs';
import type { Reporter, TestCase, TestModule } from 'vitest/node';

interface Skipped {
  /** From the root of the checkout. */
  readonly file: string;
  readonly name: string;
  /** The text of its file. */
  readonly source: string;
}

/** What tests need that a machine may lack; the first that fits counts. */
const NEEDS: readonly (readonly [need: string, fits: (test: Skipped) => boolean])[] = [
  ['a GPU and nvcc', ({ file, name }) => /^test\/cuda\//.test(file) || /\bcuda:\d|on a GPU/.test(name)],
  ['STEPTRAIN_RELEASE=1', ({ name }) => /before a release|when it is stopped/.test(name)],
  [
    'a compiled dist/ (npm run build)',
    ({ name }) => /needs dist\//.test(name) && !existsSync('dist/cli/main.js'),
  ],
  [
    'Chromium (STEPTRAIN_CHROMIUM)',
    ({ name, file }) => /in a browser|Chromium/.test(name) || file.endsWith('report/export.test.ts'),
  ],
  ['TensorBoard (STEPTRAIN_PYTHON)', ({ name }) => /TensorBoard/.test(name)],
  ['MPI', ({ name }) => /mpirun|\bMPI\b/.test(name)],
  ['/dev/shm', ({ name }) => /\/dev\/shm/.test(name)],
  ['g++', ({ name }) => /needs g\+\+/.test(name)],
  ['user namespaces', ({ file, name }) => file.endsWith('full-disk.test.ts') && !/for one file/.test(name)],
  ['../shared', ({ source }) => /sharedPath\(|\.\.\/shared/.test(source)],
];

/** The line; undefined where nothing was skipped. */
export function leftOut(tests: readonly Skipped[]): string | undefined {
  if (tests.length === 0) return undefined;
  const counts = new Map<string, number>();
  for (const test of tests) {
    const need = NEEDS.find(([, fits]) => fits(test))?.[0] ?? 'what is particular to them';
    counts.set(need, (counts.get(need) ?? 0) + 1);
  }
  const parts = [...counts].sort(([, a], [, b]) => b - a).map(([need, count]) => `${count} need ${need}`);
  return `skipped ${tests.length} tests: ${parts.join(', ')}`;
}

export default class LeftOut implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const line = leftOut(modules.flatMap((module) => skippedOf(module)));
    if (line) console.log(`\n${line}`);
  }
}

function skippedOf(module: TestModule): Skipped[] {
  const tests: TestCase[] = [...module.children.allTests('skipped')];
  // Left out by -t or .only: the user's own choice.
  const own = tests.filter((test) => test.options.mode === 'skip' || test.options.mode === undefined);
  if (own.length === 0) return [];
  const source = readFileSync(module.moduleId, 'utf8');
  return own.map(({ fullName }) => ({ file: module.relativeModuleId, name: fullName, source }));
}
