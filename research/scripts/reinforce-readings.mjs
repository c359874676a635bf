// What a table of means hides, of a sweep of method `ppo` on generated word problems: curves of the reward and of what it is worth
// on the policy's own solutions, arms at equal KL, and failures sorted by the exact judge.
//   node research/scripts/reinforce-readings.mjs SWEEP [FAILURES]    FAILURES of each arm, spread over its seeds; default 100
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { judgeText } from '../../dist/data/problems/oracle.js';
import { wordProblemRecords } from '../../dist/data/problems/records.js';

/** Iterations of a column of the curves. */
const WINDOW = 10;
/** Nats of a solution, the ends of the columns at equal KL. */
const KL = [0.1, 0.3, 1, 3, Number.POSITIVE_INFINITY];

const linesOf = (path) =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
const mean = (values) =>
  values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0) / values.length;
const percent = (share) => (share === undefined ? '–' : (100 * share).toFixed(1));
const number = (value) => value?.toFixed(2) ?? '–';
const row = (cells) => console.log(`| ${cells.join(' | ')} |`);
function table(title, head, rows) {
  console.log(`\n${title}\n`);
  row(['arm', ...head]);
  row(['---', ...head.map(() => '---')]);
  for (const cells of rows) row(cells);
}

/** One line for each rollout batch. */
function rolloutsOf(run) {
  const seen = new Set();
  return linesOf(join(run, 'metrics.jsonl')).filter(({ phase, iteration, right }) => {
    if (phase !== 'ppo' || right === undefined || seen.has(iteration)) return false;
    seen.add(iteration);
    return true;
  });
}

/** How often the source gives a right solution of the batch more than a wrong one. */
function aucOf(line) {
  const key = Object.keys(line).find((name) => name.startsWith('auc_'));
  return key === undefined ? undefined : line[key];
}

const known = new Map();
/** By text the problems of the run's test part, with their plans. */
function problemsOf(run) {
  const { data } = parse(readFileSync(join(run, 'config.yaml'), 'utf8'));
  const key = JSON.stringify(data);
  if (!known.has(key)) {
    const { seed, split, word_problems: options } = data;
    const records = wordProblemRecords({ ...options, seed, split });
    known.set(key, new Map([...records].map(({ problem }) => [problem?.problem, problem])));
  }
  return known.get(key);
}

/** The kind of the first wrong line of a wrong solution. */
function failuresOf(run, most) {
  const plans = problemsOf(run);
  const wrong = linesOf(join(run, 'problems.jsonl')).filter(({ samples }) => !samples[0].right);
  return wrong.slice(0, most).map(({ problem, samples: [{ text, finish_reason: end }] }) => {
    if (end !== 'stop') return 'cut off';
    const { lines, missing } = judgeText(plans.get(problem), text);
    return lines.find(({ right }) => !right)?.error ?? (missing.length > 0 ? 'step missing' : 'no answer');
  });
}

const [sweep, failures = '100'] = process.argv.slice(2);
const { arms, seeds } = JSON.parse(readFileSync(join(sweep, 'sweep.json'), 'utf8'));
const runs = arms
  .map(({ arm, runs }) => ({ arm, runs: Object.values(runs).map((run) => join(sweep, run)) }))
  .filter(({ runs }) => runs.length > 0);
const rollouts = runs.map(({ arm, runs }) => ({ arm, lines: runs.flatMap(rolloutsOf) }));
const learned = rollouts.filter(({ lines }) => lines.some(({ iteration }) => iteration >= WINDOW));
const last = Math.max(...rollouts.flatMap(({ lines }) => lines.map(({ iteration }) => iteration)));
const windows = Array.from({ length: Math.ceil((last + 1) / WINDOW) }, (_, i) => i * WINDOW);
const within = (lines, from) =>
  lines.filter(({ iteration }) => iteration >= from && iteration < from + WINDOW);

const cells = (lines) => {
  const aucs = lines.map(aucOf).filter((auc) => auc !== undefined);
  return [
    `${number(mean(lines.map(({ reward_mean: reward }) => reward)))}; ${percent(mean(lines.map(({ right }) => right)))}; ` +
      percent(mean(aucs)),
  ];
};
table(
  `Reward; right solutions, %; AUC of the reward for right answers, %: of the policy's samples, ${seeds.length} seeds, by iteration`,
  windows.map((from) => `${from} to ${Math.min(from + WINDOW - 1, last)}`),
  learned.map(({ arm, lines }) => [arm, ...windows.flatMap((from) => cells(within(lines, from)))]),
);
table(
  'Right solutions among the policy’s samples, %, by nats of KL to the base (number of rollout batches)',
  KL.map((end, i) => `${KL[i - 1] ?? 'below'} to ${end}`),
  learned.map(({ arm, lines }) => [
    arm,
    ...KL.map((end, i) => {
      const own = lines.filter(
        ({ kl_answer: kl }) => kl < end && kl >= (KL[i - 1] ?? Number.NEGATIVE_INFINITY),
      );
      return own.length === 0 ? '–' : `${percent(mean(own.map(({ right }) => right)))} (${own.length})`;
    }),
  ]),
);
const kinds = runs.map(({ arm, runs }) => {
  const each = Math.ceil(Number(failures) / runs.length);
  return { arm, found: runs.flatMap((run) => failuresOf(run, each)) };
});
const names = [...new Set(kinds.flatMap(({ found }) => found))].sort();
table(
  `The first wrong line of up to ${failures} wrong solutions of each arm`,
  [...names, 'solutions'],
  kinds.map(({ arm, found }) => [
    arm,
    ...names.map((name) => found.filter((kind) => kind === name).length),
    found.length,
  ]),
);
