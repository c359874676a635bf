import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { PATIENCE_MS } from './test/patience.js';

/** Folders whose tests run in a process of their own each: they print, start programs, or break things on purpose. */
const ISOLATED = ['e2e', 'cli', 'attacks'] as const;

/** What else cannot share a process: tests that replace a module, watch memory, or change what Node itself has. */
const APART = [
  'test/scoring/verdict/written-verdicts.test.ts',
  'test/files/lock.test.ts',
  'test/generate/soak.test.ts',
  'test/methods/stepamc/rationales.test.ts',
  'test/runtime/**/*.test.ts',
];

/** Files and folders that take longest. */
const LONG = [
  'test/e2e/',
  'test/attacks/full-disk',
  'test/report/browser',
  'test/train/plan/planned-work',
  'test/train/verdicts/data',
  'test/cli/',
];

/** Begins with what takes longest, so that the workers end together. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification) => {
      const at = LONG.findIndex((name) => moduleId.includes(name));
      return at < 0 ? LONG.length : at;
    };
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

const folders = (names: readonly string[]) => names.map((name) => `test/${name}/**/*.test.ts`);

export default defineConfig({
  test: {
    // Tests leave the user's cache alone.
    env: { STEPTRAIN_CACHE: join(tmpdir(), 'steptrain-test-cache') },
    reporters: ['default', './test/left-out.ts'],
    globalSetup: 'test/global-setup.ts',
    setupFiles: 'test/setup.ts',
    pool: 'forks',
    maxWorkers: availableParallelism(),
    sequence: { sequencer: LongestFirst },
    testTimeout: PATIENCE_MS,
    hookTimeout: PATIENCE_MS,
    expect: { poll: { timeout: PATIENCE_MS } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: [...folders(ISOLATED), ...APART],
          // A process loads modules and the addon once for all its files.
          isolate: false,
          setupFiles: ['test/setup.ts', 'test/unit-setup.ts'],
          // Which live long enough to see that many tests leave their tensors to the collector.
          execArgv: ['--disable-warning=STEPTRAIN_ABANDONED_TENSOR'],
        },
      },
      { extends: true, test: { name: 'apart', include: APART } },
      ...ISOLATED.map((name) => ({ extends: true as const, test: { name, include: folders([name]) } })),
    ],
  },
});
