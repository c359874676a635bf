// Adds what one part of gpu-check.sh found to the run's JSON, which lies beside the folder of its logs.
//   node gpu-check-report.mjs LOGS PART EXIT-CODE SECONDS CLOCKS-BEFORE CLOCKS-AFTER
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [logs, part, code, seconds, before, after] = process.argv.slice(2);
const gpu = before.split(',')[0].trim();
const slug = gpu.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
const path = join(logs, '..', `gpu-check-${slug}-${new Date().toISOString().slice(0, 10)}.json`);

const read = (name) =>
  existsSync(join(logs, name)) ? JSON.parse(readFileSync(join(logs, name), 'utf8')) : undefined;

/** What the part left: a summary of tests, or the figures as they are. */
function findings() {
  if (part === 'ops' || part === 'models') {
    const tests = read(`${part}.json`);
    if (!tests) return undefined;
    const failures = tests.testResults.flatMap(({ assertionResults }) =>
      assertionResults.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName),
    );
    return {
      passed: tests.numPassedTests,
      failed: tests.numFailedTests,
      skipped: tests.numPendingTests,
      failures,
    };
  }
  if (part === 'quickstart') {
    const losses = (device) =>
      readFileSync(join(logs, `quickstart-${device}`, 'metrics.jsonl'), 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
        .filter(({ loss }) => loss !== undefined)
        .map(({ step, loss }) => ({ step, loss }));
    return code === '0' ? { cpu: losses('cpu'), cuda: losses('cuda') } : undefined;
  }
  return read(`${part}.json`);
}

const report = existsSync(path)
  ? JSON.parse(readFileSync(path, 'utf8'))
  : { gpu, node: process.versions.node, parts: {} };
report.parts[part] = {
  passed: code === '0',
  seconds: Number(seconds),
  clocks: { before, after },
  findings: findings(),
};
writeFileSync(path, `${JSON.stringify(report, undefined, 1)}\n`);
console.log(
  `${part}: ${code === '0' ? 'passed' : `failed (exit code ${code})`} in ${seconds} s; figures in ${path}`,
);
