// AUC of arms of a sweep on one set of judged steps: means over seeds, paired differences over seeds (Student) and over problems
// (bootstrap of the mean of the seeds), beside judges that know only where a step stands, how long it is, or its share of digits.
//   node research/scripts/arms-auc.mjs 'warm-up=DIR' 'SFT continued=DIR,DIR,DIR' 'StepAMC=DIR,DIR,DIR'
//   node research/scripts/arms-auc.mjs only:test.jsonl:subject=Algebra …    of problems whose rows in that file say so; but: of the others
//   node research/scripts/arms-auc.mjs 'step:\d' …                        of steps whose text has such a part
// A DIR holds verdicts.jsonl: of a run, or --output of `steptrain eval correction`. Seeds stand in the same order in every arm.
// A single DIR stands for all seeds. research/stepamc-gsm8k.md has results.
import { readFileSync } from 'node:fs';
import { readVerdictDump } from '../../dist/eval/reports/dump.js';
import {
  BOOTSTRAP,
  ProblemSample,
  percentileInterval,
  resampledProblems,
} from '../../dist/eval/statistics/bootstrap.js';
import { average, meanInterval, sampleDeviation } from '../../dist/eval/statistics/student.js';

const given = process.argv.slice(2);
const part = /^(only|but):(.*):(.*?)=(.*)$/.exec(given[0] ?? '');
if (part) given.shift();
const chosen = new Set();
if (part)
  for (const line of readFileSync(part[2], 'utf8').split('\n').filter(Boolean)) {
    const row = JSON.parse(line);
    if (row[part[3]] === part[4]) chosen.add(row.problem);
  }
const steps = /^step:(.*)$/.exec(given[0] ?? '');
if (steps) given.shift();
const has = new RegExp(steps?.[1] ?? '');
const counts = ({ problem, text }) =>
  (!part || chosen.has(problem) === (part[1] === 'only')) && has.test(text);
const arms = await Promise.all(
  given.map(async (text) => {
    const at = text.indexOf('=');
    const folders = text.slice(at + 1).split(',');
    return {
      name: text.slice(0, at),
      seeds: await Promise.all(folders.map(async (folder) => (await readVerdictDump(folder)).filter(counts))),
    };
  }),
);
if (arms.length === 0 || arms.some(({ name }) => name === ''))
  throw new Error("expected 'NAME=DIR,DIR,…' of each arm");
const most = Math.max(...arms.map(({ seeds }) => seeds.length));
for (const { name, seeds } of arms)
  if (seeds.length !== 1 && seeds.length !== most)
    throw new Error(
      `${name} has ${seeds.length} directories and another arm ${most}; name as many, or one for all seeds`,
    );
const [first] = arms[0].seeds;
const placeOf = (steps) => steps.map((row) => `${row.solution} ${row.step} ${row.label}`).join();
for (const { name, seeds } of arms)
  if (seeds.some((steps) => placeOf(steps) !== placeOf(first))) throw new Error(`${name} judged other steps`);

const knows = (value) => [first.map((row) => ({ ...row, probability: value(row) }))];
const dull = [
  { name: 'place of the step alone', seeds: knows(({ step }) => 1 - step / 100) },
  { name: 'length of the step alone', seeds: knows(({ text }) => 1 - text.length / 10_000) },
  {
    name: 'share of digits alone',
    seeds: knows(({ text }) => 1 - text.replace(/\D/g, '').length / text.length),
  },
];
const sampled = [...arms, ...dull].map(({ name, seeds }) => ({
  name,
  samples: seeds.map((steps) => new ProblemSample(steps, { invalidAsWrong: true })),
}));
const { problems } = sampled[0].samples[0];
const once = new Uint32Array(problems).fill(1);
const aucs = ({ samples }, weights) => samples.map((sample) => sample.auc(weights));
const drawn = sampled.map(() => []);
for (const weights of resampledProblems(problems, BOOTSTRAP))
  for (const [i, arm] of sampled.entries()) drawn[i].push(average(aucs(arm, weights)));

const percent = (value) => (100 * value).toFixed(1);
const points = (value) => `${value < 0 ? '−' : '+'}${Math.abs(100 * value).toFixed(1)}`;
const wrong = first.filter(({ label }) => label === 0).length;
console.log(
  `${problems} problems, ${first.length} steps, ${wrong} wrong; ${BOOTSTRAP.resamples} resamples of problems\n`,
);
console.log('| arm | AUC, % | over problems |\n| --- | --- | --- |');
sampled.forEach((arm, i) => {
  const values = aucs(arm, once);
  const spread = values.length > 1 ? ` ± ${percent(sampleDeviation(values))}` : '';
  console.log(
    `| ${arm.name} | ${percent(average(values))}${spread} | ${percentileInterval(drawn[i]).map(percent).join(' to ')} |`,
  );
});
console.log('\n| difference | points | over seeds | p | over problems |\n| --- | --- | --- | --- | --- |');
const compared = sampled.slice(0, arms.length);
for (const [i, to] of compared.entries())
  for (const [j, arm] of compared.entries()) {
    if (j <= i) continue;
    const [a, b] = [aucs(to, once), aucs(arm, once)];
    const { mean, interval, p } = meanInterval(b.map((value, seed) => value - a[a.length === 1 ? 0 : seed]));
    const over = percentileInterval(drawn[j].map((value, k) => value - drawn[i][k]));
    const seeds = interval ? interval.map(points).join(' to ') : '–';
    console.log(
      `| ${arm.name} − ${to.name} | ${points(mean)} | ${seeds} | ${p === undefined ? '–' : p.toFixed(2)} | ${over.map(points).join(' to ')} |`,
    );
  }
