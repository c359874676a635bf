// Runs on the emulated GPU, as sm_90, the tests that STEPTRAIN_TEST_DEVICE moves there: those of models, autograd, objectives,
// generation and training that open their device by openTest(). The op tests, which run on every device, are run.mjs's.
//   npm run test:emulated -- --suite [--limit SECONDS] [FILE …]     each file in a process of its own, with a limit
// It takes hours on a small machine, since the emulator computes a GPU's threads one after the other.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

/** Files that STEPTRAIN_TEST_DEVICE moves, but that would take hours, and why nothing is lost. */
const LEFT_OUT = {};

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
  const limit = Number(values.limit) * 1000;
  if (!(limit > 0)) throw new Error(`--limit takes seconds, not '${values.limit}'`);
  const failed = [];
  let passed = 0;
  for (const file of files(root)) {
    if (positionals.length > 0 && !positionals.some((part) => file.includes(part))) continue;
    if (file in LEFT_OUT && positionals.length === 0) {
      console.log(`${file}: left out: ${LEFT_OUT[file]}`);
      continue;
    }
    const began = performance.now();
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ['node_modules/vitest/vitest.mjs', 'run', file, '--reporter=dot', `--testTimeout=${limit}`],
      {
        cwd: root,
        encoding: 'utf8',
        timeout: limit,
        env: { ...process.env, ...environment, NO_COLOR: '1', STEPTRAIN_TEST_DEVICE: 'cuda:0' },
      },
    );
    const seconds = Math.round((performance.now() - began) / 1000);
    const tests = /^ +Tests +(.*)$/m.exec(stdout)?.[1];
    console.log(
      `${file}: ${tests ?? (status === null ? 'stopped at its limit' : `exit code ${status}`)}, ${seconds} s`,
    );
    if (status === 0) passed++;
    else {
      failed.push(file);
      console.log(`${stdout}${stderr}`);
    }
  }
  console.log(`${passed} files passed${failed.length > 0 ? `; these did not: ${failed.join(', ')}` : ''}`);
  return failed.length === 0 && passed > 0 ? 0 : 1;
}
