// Runs on the emulated GPU, as sm_90, the tests that STEPTRAIN_TEST_DEVICE moves there: those of models, autograd, objectives,
// generation and training that open their device by openTest(). The op tests, which run on every device, are run.mjs's.
//   npm run test:emulated -- --suite [--limit SECONDS] [FILE …]     each file in a process of its own, with a limit
// Most take seconds to a minute of a processor; those that generate or train longer take many, since the emulator computes a
// GPU's threads one after the other.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

function files(root) {
  return readdirSync(join(root, 'test'), { recursive: true })
    .map((name) => `test/${name}`)
    .filter((name) => name.endsWith('.test.ts') && !/^test\/(ops|cuda)\//.test(name))
    .filter((name) => readFileSync(join(root, name), 'utf8').includes('openTest('))
    .sort();
}

/** @returns {number} the exit code */
export function runSuite(root, args, environment) {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: { limit: { type: 'string', default: '1800' } },
  });
  const limit = Number(values.limit);
  if (!(limit > 0)) throw new Error(`--limit takes seconds, not '${values.limit}'`);
  const failed = [];
  let passed = 0;
  for (const file of files(root)) {
    if (positionals.length > 0 && !positionals.some((part) => file.includes(part))) continue;
    const began = performance.now();
    const patience = [`--testTimeout=${1000 * limit}`, `--hookTimeout=${1000 * limit}`];
    const vitest = ['node_modules/vitest/vitest.mjs', 'run', file, '--reporter=dot', ...patience];
    // timeout ends the worker too.
    const { status, stdout, stderr } = spawnSync(
      'timeout',
      ['-k', '5', values.limit, process.execPath, ...vitest],
      {
        cwd: root,
        encoding: 'utf8',
        env: { ...process.env, ...environment, NO_COLOR: '1', STEPTRAIN_TEST_DEVICE: 'cuda:0' },
      },
    );
    const seconds = Math.round((performance.now() - began) / 1000);
    const tests = /^ +Tests +(.*)$/m.exec(stdout)?.[1];
    const ended = status === 124 || status === 137 ? 'stopped at its limit' : `exit code ${status}`;
    console.log(`${file}: ${status === 0 ? tests : ended}, ${seconds} s`);
    if (status === 0) passed++;
    else {
      failed.push(file);
      console.log(`${stdout}${stderr}`);
    }
  }
  console.log(`${passed} files passed${failed.length > 0 ? `; these did not: ${failed.join(', ')}` : ''}`);
  return failed.length === 0 && passed > 0 ? 0 : 1;
}
