// Tests the CUDA kernels without a GPU: builds the emulator's addon (build.mjs) and runs on it what would run on cuda:0,
// once as sm_80, where the portable kernels are chosen, and once as sm_90, for the families with kernels of Hopper's own.
//   npm run test:emulated                  both; arguments go on to vitest
//   STEPTRAIN_EMULATED_CAPABILITY=90 …     that one alone; the addon also takes 89, 100 and 120, which have sm_80's kernels
//   STEPTRAIN_EMULATED_SEED=N …            as it was with the seed that it printed
//   npm run test:emulated -- --suite       instead, what STEPTRAIN_TEST_DEVICE moves to a GPU (suite.mjs)
// Where both pass in whole, it notes in verified.json of which sources that is true.
import { spawnSync } from 'node:child_process';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runSuite } from './suite.mjs';
import { markVerified, sourcesHash } from './verified.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../../..');
const PORTABLE = [
  'test/cuda',
  'test/ops',
  'test/runtime/memory-limit.test.ts',
  'test/models/golden.test.ts',
  'test/models/deberta.test.ts',
];
const HOPPER = [
  ...['capture', 'early', 'few-rows', 'launches', 'gemm', 'tiles', 'attention', 'head', 'quickstart'].map(
    (name) => `test/cuda/${name}`,
  ),
  ...['gemm', 'quantized', 'attention', 'head'].map((name) => `test/ops/${name}`),
  'test/models/golden.test.ts',
];

function run(command, args, env = {}) {
  return (
    spawnSync(command, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } }).status ?? 1
  );
}

const seed = process.env.STEPTRAIN_EMULATED_SEED ?? String(1 + Math.floor(Math.random() * 1e6));
const tested = sourcesHash();
const built = run(process.execPath, [join(root, 'test/cuda/emulator/build.mjs')]);
if (built !== 0) process.exit(built);
const addon = join(root, 'build/emulated/build/Release/steptrain.node');
if (process.argv[2] === '--suite') {
  const environment = { STEPTRAIN_ADDON: addon, STEPTRAIN_EMULATED_CAPABILITY: '90' };
  process.exit(runSuite(root, process.argv.slice(3), environment));
}
let status = 0;
for (const [capability, files] of [
  ['80', PORTABLE],
  ['90', HOPPER],
]) {
  if ((process.env.STEPTRAIN_EMULATED_CAPABILITY ?? capability) !== capability) continue;
  console.log(`kernels of sm_${capability}, emulated, seed ${seed}`);
  const ended = run(
    process.execPath,
    [
      join(root, 'node_modules/vitest/vitest.mjs'),
      'run',
      ...files,
      '-t',
      'cuda',
      '--maxWorkers=2',
      '--testTimeout=600000',
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=build/tests-emulated-${capability}.json`,
      ...process.argv.slice(2),
    ],
    {
      STEPTRAIN_ADDON: addon,
      STEPTRAIN_EMULATED_CAPABILITY: capability,
      STEPTRAIN_EMULATED_GPUS: '2',
      STEPTRAIN_EMULATED_SEED: seed,
    },
  );
  status ||= ended;
}
const isWhole = process.argv.length === 2 && process.env.STEPTRAIN_EMULATED_CAPABILITY === undefined;
if (status === 0 && isWhole) markVerified(tested);
process.exit(status);
