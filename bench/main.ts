/** `npm run bench -- [suite …] [--pairs 7] [--seconds 1] [--dtype bf16] [--json FILE]`. See README.md. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import yargs from 'yargs';
import { type Group, type MetricSuite, SUITES, type Suite } from './cases.js';
import { predictionLines } from './cluster-predictions.js';
import { measureContention } from './contention.js';
import { groupsOf } from './groups.js';
import { limitsOf, measureLimits } from './limits.js';
import { describeMachine, machineLine, resultName } from './machine.js';
import { measureGroup } from './pairs.js';
import { contentionTable, limitsLine, rivalTable, runtimeTable } from './report.js';
import { findRival } from './rival.js';
import { measureRuntime } from './runtime.js';

const RESULTS = fileURLToPath(new URL('../../../bench/results', import.meta.url));

const args = await yargs(process.argv.slice(2))
  .scriptName('npm run bench --')
  .usage(`$0 [suite …]\n\nTimes steptrain beside PyTorch. Suites: ${SUITES.join(', ')}.`)
  .command('$0 [suite..]', false, (argv) =>
    argv.positional('suite', { choices: SUITES, array: true, describe: 'Suites to run; all by default' }),
  )
  .option('pairs', { type: 'number', default: 7, describe: 'Interleaved trials of each side' })
  .option('seconds', { type: 'number', default: 1, describe: 'Min seconds of one trial of one case' })
  .option('device', { type: 'string', default: 'cpu', describe: 'cpu, cuda or cuda:N' })
  .option('dtype', {
    choices: ['f32', 'bf16'] as const,
    describe: 'Only the cases of this type; both by default',
  })
  .option('match', {
    type: 'string',
    default: '',
    describe: 'Only groups and metrics with this in their title',
  })
  .option('rival', { type: 'string', default: '', describe: "Only the rival's ways with this in their name" })
  .option('json', { type: 'string', describe: 'Where the metrics go [default: bench/results/…]' })
  .check(({ pairs, seconds }) => {
    if (!Number.isInteger(pairs) || pairs < 1)
      throw new Error('--pairs must be a whole number of at least 1');
    if (!(seconds > 0)) throw new Error('--seconds must be above 0');
    return true;
  })
  .strict()
  .parse();

// Both sides' trials read it (trial.ts, peers/trial.py).
process.env.STEPTRAIN_BENCH_DEVICE = args.device === 'cuda' ? 'cuda:0' : args.device;
const onGpu = args.device !== 'cpu';
const chosen = args.suite as readonly Suite[] | undefined;
const suites = chosen?.length ? SUITES.filter((suite) => chosen.includes(suite)) : SUITES;
const found = findRival();
const rival = typeof found === 'string' ? undefined : found;
const machine = describeMachine(rival);
const progress = (text: string) => {
  if (process.stderr.isTTY) process.stderr.write(`\x1b[2K\r${text}`);
};
const clear = () => progress('');

console.log(machineLine(machine));
if (typeof found === 'string') console.log(found);
const chosenGroups = (groups: readonly Group[]): Group[] =>
  groups
    .filter(({ title }) => title.includes(args.dtype ?? '') && title.includes(args.match))
    .map((group) => ({ ...group, settings: group.settings.filter((name) => name.includes(args.rival)) }));
const isMetric = (suite: Suite): suite is MetricSuite =>
  ['runtime', 'generation', 'quantized', 'experts', 'cluster'].includes(suite);
const timed = suites.flatMap((suite) =>
  isMetric(suite) || suite === 'contention' ? [] : chosenGroups(groupsOf(suite, onGpu)),
);
const measure = (group: (typeof timed)[number]) => measureGroup(group, rival, args, progress);
const limits = timed.some((group) => !group.limits)
  ? await measureLimits(onGpu ? 0 : machine.threads, measure)
  : undefined;
clear();
if (limits) console.log(limitsLine(limits));
const groups: object[] = [];
const metrics: Partial<Record<MetricSuite | 'contention', object>> = {};
const path = args.json ?? join(RESULTS, resultName(machine, chosen?.length ? suites : []));
mkdirSync(dirname(path), { recursive: true });
/** After every table, so that a bench which is stopped leaves what it found. */
const save = () => {
  const { pairs, seconds } = args;
  const found = { machine, pairs, seconds, limits, groups, ...metrics };
  writeFileSync(path, `${JSON.stringify(found, undefined, 1)}\n`);
};
for (const group of timed) {
  const measured = await measure(group);
  const own = measured.slice(0, group.limits?.length ?? 0);
  const results = measured.slice(own.length);
  const here = limitsOf(own, limits);
  clear();
  if (own.length > 0) console.log(`\n${limitsLine(here)}`);
  console.log(`\n${rivalTable(group.title, results, here)}`);
  groups.push({ title: group.title, results, ...(own.length > 0 ? { limits: here } : {}) });
  save();
}
if (suites.includes('contention')) {
  const results = await measureContention(rival, args, progress);
  clear();
  console.log(`\n${contentionTable(results)}`);
  metrics.contention = results;
  save();
}
for (const suite of suites) {
  if (!isMetric(suite)) continue;
  const results = await measureRuntime(suite, args, progress);
  clear();
  console.log(`\n${runtimeTable(suite, results)}`);
  if (suite === 'cluster') for (const line of predictionLines()) console.log(line);
  metrics[suite] = results;
  save();
}
console.log(`\nmetrics in ${path}`);
