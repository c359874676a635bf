// The addon for arm64 under qemu's emulation of a processor: op tests and golden models on every instruction set of ARM, then a
// training, the same on one thread and on two, a judge, and doctor on a processor without bf16, by the program itself. vitest's own
// process stays on this machine; its workers are emulated.
//   npm run test:arm64                        all of it; needs g++-aarch64-linux-gnu and qemu-user
//   npm run test:arm64 -- test/ops/gemm …     those tests alone; arguments go on to vitest
//   npm run test:arm64 -- --system [FILES]    instead, the packages (FILES, or what npm pack makes: steptrain and its addon for arm64)
//                                             in a system of arm64 without a compiler: installed, tested by doctor, trained,
//                                             judged and generated with (system.mjs)
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build, emulator, fail, foreignNode, output, PROBLEM, root, run, TINY } from './node.mjs';
import { checkSystem } from './system.mjs';

const TESTS = ['test/ops', 'test/models/golden.test.ts', 'test/models/deberta.test.ts'];
/** What Debian's libraries for arm64 are below. */
const LIBRARIES = '/usr/aarch64-linux-gnu';
/** The oldest that the addon is for, as in a Raspberry Pi 4: ARMv8.0, without atomics of its own and without bf16. */
const OLDEST = 'cortex-a72';
/** A program that is Node for arm64 as far as whoever starts it can tell. */
function emulated(node, processor) {
  const path = join(build, processor === 'max' ? 'node' : `node-${processor}`);
  writeFileSync(path, `#!/bin/sh\nexec ${emulator()} -L ${LIBRARIES} -cpu ${processor} '${node}' "$@"\n`);
  chmodSync(path, 0o755);
  return path;
}

emulator();
if (process.argv[2] === '--system') {
  await checkSystem(process.argv.slice(3));
  process.exit(0);
}
run(process.execPath, ['scripts/build.mjs', '--no-addon']);
run(process.execPath, ['scripts/build.mjs', '--arch=arm64']);
const node = emulated(foreignNode(), 'max');
const env = { ...process.env, STEPTRAIN_ADDON: join(build, 'Release/steptrain.node') };

const only = process.argv.slice(2);
const preload = `data:text/javascript,process.execPath=${JSON.stringify(node)}`;
const vitest = ['--import', preload, 'node_modules/vitest/vitest.mjs', 'run'];
run(
  process.execPath,
  [...vitest, ...(only.length > 0 ? only : TESTS), '--testTimeout=900000', '--hookTimeout=900000'],
  { env },
);
if (only.length > 0) process.exit(0);

const folder = mkdtempSync(join(tmpdir(), 'steptrain-arm64-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const steptrain = (...args) => run(node, [join(root, 'dist/cli/main.js'), ...args], { env, cwd: folder });
for (const dtype of ['f32', 'bf16']) {
  const [one, two] = [1, 2].map((threads) => {
    const output = join(folder, `${dtype}-${threads}`);
    // The last weights, since those of the start would be the same in any case.
    const settings = [
      ...TINY,
      'sft.load_best_model_at_end=false',
      `model.dtype=${dtype}`,
      `run.threads=${threads}`,
    ];
    steptrain(
      'run',
      'quickstart_sft',
      ...settings.flatMap((setting) => ['--set', setting]),
      '--output',
      output,
    );
    return readFileSync(join(output, 'adapter/adapter_model.safetensors'));
  });
  if (!one.equals(two)) fail(`one thread and two leave other weights in ${dtype}`);
}
writeFileSync(join(folder, 'problem.txt'), PROBLEM);
steptrain('judge', join(folder, 'bf16-2'), 'problem.txt');
const doctor = output(emulated(foreignNode(), OLDEST), [join(root, 'dist/cli/main.js'), 'doctor'], { env });
if (!/^cpu +neon kernels \(available: neon, portable\)/m.test(doctor))
  fail(`on ${OLDEST} other kernels are chosen than NEON's without bf16`);
