// The report of gpu-check.sh: gpu-check-<GPU>-<date>.json in the folder of the results, and the logs as .tar.gz beside
// it. An entry is made before a part starts, so that a part that is killed with everything around it leaves a trace.
//   node report.mjs RESULTS begin PART
//   node report.mjs RESULTS end PART EXIT-CODE SECONDS
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { clocksOf, findingsOf } from './findings.mjs';

const [results, moment, part, code, seconds] = process.argv.slice(2);
const work = process.env.STEPTRAIN_CHECK_WORK;
const logs = join(work, 'logs');

const { addon } = await import('../../dist/native/addon.js');
const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const gpu = process.env.STEPTRAIN_CHECK_DEVICE === 'cpu' ? 'no GPU' : addon().cudaDevices()[0];
const slug = gpu.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
const name = `gpu-check-${slug}-${new Date().toISOString().slice(0, 10)}`;
const path = join(results, `${name}.json`);

const report = existsSync(path)
  ? JSON.parse(readFileSync(path, 'utf8'))
  : { gpu, steptrain: version, node: process.versions.node, parts: {} };
if (process.env.STEPTRAIN_CHECK_TINY) report.tiny = true;
const write = () => writeFileSync(path, `${JSON.stringify(report, undefined, 1)}\n`);

/** Of the runs of a part, also of one that was stopped, what tells of it without the weights goes to the logs. */
function keepRuns(folder) {
  for (const run of existsSync(folder) ? readdirSync(folder) : []) {
    for (const file of ['config.yaml', 'metrics.jsonl', 'memory.json', 'eval.json']) {
      const from = join(folder, run, file);
      if (existsSync(from)) copyFileSync(from, join(logs, `${run}.${file}`));
    }
  }
}

mkdirSync(results, { recursive: true });
if (moment === 'begin') {
  report.parts[part] = { outcome: 'started', started: new Date().toISOString() };
  write();
} else {
  keepRuns(join(work, 'runs'));
  const { headline, passed = true, ...findings } = findingsOf(part, logs, work);
  const outcome = {
    0: passed ? 'passed' : 'failed',
    124: `stopped at its limit after ${seconds} s`,
    137: `killed at its limit after ${seconds} s`,
    143: `stopped from outside after ${seconds} s`,
  }[code];
  report.parts[part] = {
    outcome: outcome ?? `failed (exit code ${code})`,
    headline,
    seconds: Number(seconds),
    started: report.parts[part]?.started,
    clocks: clocksOf(join(logs, `${part}.clocks.csv`)),
    ...findings,
  };
  write();
  spawnSync('tar', ['-czf', join(results, `${name}-logs.tar.gz`), '-C', work, 'logs']);
  console.log(`${part}: ${report.parts[part].outcome}${headline ? `: ${headline}` : ''} (${seconds} s)`);
  if (code === '0' && !passed) process.exitCode = 1;
}
