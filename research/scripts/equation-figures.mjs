// Solutions that are equations alone (`real-solutions.mjs equations`), beside the worked ones: means over seeds, paired differences over
// seeds (Student) and over problems (bootstrap of the mean of the seeds). No judge of the package is asked.
//   node research/scripts/equation-figures.mjs problems.jsonl 'M0=DIR/eval-0.jsonl' 'KTO=DIR/eval-2.jsonl,DIR/eval-2.jsonl,…'
//   node research/scripts/equation-figures.mjs problems.jsonl:100-200 …      of its problems from the 101st to the 200th alone
//   node research/scripts/equation-figures.mjs picture:out.svg:'right answer' problems.jsonl …     one figure alone, as a picture besides
// Rows have the index of a problem of the file, or its text, and the text of a solution; sample 0 counts alone. Seeds stand in the same
// order in every arm; a single file stands for all seeds. research/step-kto-gsm8k.md has results.
import { readFileSync, writeFileSync } from 'node:fs';
import { equationsIn } from '../../dist/data/equations/equations.js';
import { BOOTSTRAP, percentileInterval, resampledProblems } from '../../dist/eval/statistics/bootstrap.js';
import { average, meanInterval, sampleDeviation } from '../../dist/eval/statistics/student.js';
import { picture } from '../../dist/report/svg/picture.js';

const rowsOf = (path) => readFileSync(path, 'utf8').split('\n').filter(Boolean).map(JSON.parse);
const args = process.argv.slice(2);
const drawn = /^picture:(.*):(.*)$/.exec(args[0] ?? '');
if (drawn) args.shift();
const [selection, ...given] = args;
const [, path, from = 0, to = Number.POSITIVE_INFINITY] = /^(.*?)(?::(\d+)-(\d+))?$/.exec(selection ?? '');
if (given.length === 0 || given.some((text) => !/^[^=]+=./.test(text)))
  throw new Error("expected the problems, and 'NAME=FILE,FILE,…' of each arm");
const problems = rowsOf(path).map((row) => ({
  ...row,
  results: read(row.solution).map(({ result }) => result),
}));
const byText = new Map(problems.map(({ problem }, i) => [problem, i]));

/** The equations of a solution, one a line. */
function read(text) {
  return text.split('\n').flatMap((line) => {
    const [first] = equationsIn(line).equations;
    return first ? [{ result: Number(line.slice(line.lastIndexOf('=') + 1)), holds: first.holds }] : [];
  });
}

/** Numerators and denominators of each figure. */
const FIGURES = {
  'right answer': ({ answer }, _, text) => [Number(/The answer is: (\S+)\s*$/.exec(text)?.[1] === answer), 1],
  'first equation right': ({ results }, [first]) => [
    Number(!!first?.holds && results.includes(first.result)),
    1,
  ],
  'results reached': ({ results }, own) => [
    results.filter((result) => own.some((each) => each.result === result)).length,
    results.length,
  ],
  'equations that do not hold': (_, own) => [own.filter(({ holds }) => !holds).length, own.length],
  'equations a solution': (_, own) => [own.length / 100, 1],
  'solutions of one equation': (_, own) => [Number(own.length === 1), 1],
  'right answer where one is enough': (of, _, text) =>
    of.results.length === 1 ? FIGURES['right answer'](of, _, text) : [0, 0],
};

/** By problem and figure. */
function counted(file) {
  const found = problems.map(() => undefined);
  for (const row of rowsOf(file)) {
    const { text } = row.samples?.[0] ?? row;
    const at = row.samples ? byText.get(row.problem) : row.problem;
    if (!row.samples && row.sample !== 0) continue;
    const of = problems[at];
    if (!of) throw new Error(`${file}: ${JSON.stringify(row.problem)} is not in ${path}`);
    found[at] = Object.fromEntries(
      Object.entries(FIGURES).map(([name, of_]) => [name, of_(of, read(text), text)]),
    );
  }
  return found;
}

const arms = given.map((text) => {
  const at = text.indexOf('=');
  return {
    name: text.slice(0, at),
    seeds: text
      .slice(at + 1)
      .split(',')
      .map(counted),
  };
});
const asked = arms[0].seeds[0].flatMap((own, i) => (own && i >= from && i < to ? [i] : []));
for (const { name, seeds } of arms)
  for (const seed of seeds)
    if (
      asked.some((i) => !seed[i]) ||
      seed.filter(Boolean).length !== arms[0].seeds[0].filter(Boolean).length
    )
      throw new Error(`${name} solved other problems`);

const share = (seed, figure, weights) => {
  let [sum, of] = [0, 0];
  asked.forEach((i, k) => {
    sum += weights[k] * seed[i][figure][0];
    of += weights[k] * seed[i][figure][1];
  });
  return sum / of;
};
const once = new Uint32Array(asked.length).fill(1);
// Copies: one buffer serves all draws.
const draws = Array.from(resampledProblems(asked.length, BOOTSTRAP), (weights) => Uint32Array.from(weights));
const percent = (value) => (Number.isNaN(value) ? '–' : (100 * value).toFixed(1));
const points = (value) =>
  Number.isNaN(value) ? '–' : `${value < 0 ? '−' : '+'}${Math.abs(100 * value).toFixed(1)}`;
const names = Object.keys(FIGURES).filter((name) => !drawn || name === drawn[2]);
console.log(`${asked.length} problems; ${BOOTSTRAP.resamples} resamples of problems\n`);
console.log(`| arm | ${names.join(' | ')} |\n|${' --- |'.repeat(names.length + 1)}`);
for (const { name, seeds } of arms) {
  const cells = names.map((figure) => {
    const values = seeds.map((seed) => share(seed, figure, once));
    return `${percent(average(values))}${values.length > 1 ? ` ± ${percent(sampleDeviation(values))}` : ''}`;
  });
  console.log(`| ${name} | ${cells.join(' | ')} |`);
}
console.log(
  '\n| difference | figure | points | over seeds | over problems |\n| --- | --- | --- | --- | --- |',
);
const differences = [];
for (const [i, to] of arms.entries())
  for (const arm of arms.slice(i + 1))
    for (const figure of names) {
      const of = ({ seeds }, weights) => seeds.map((seed) => share(seed, figure, weights));
      const [a, b] = [of(to, once), of(arm, once)];
      const { mean, interval } = meanInterval(b.map((value, seed) => value - a[a.length === 1 ? 0 : seed]));
      const over = percentileInterval(
        draws.map((weights) => average(of(arm, weights)) - average(of(to, weights))),
      );
      differences.push({ name: `${arm.name} − ${to.name}`, mean, interval });
      const seeds = interval ? interval.map(points).join(' to ') : '–';
      console.log(
        `| ${arm.name} − ${to.name} | ${figure} | ${points(mean)} | ${seeds} | ${over.map(points).join(' to ')} |`,
      );
    }
if (drawn) {
  const [, file, figure] = drawn;
  const values = ({ seeds }) => seeds.map((seed) => share(seed, figure, once));
  const blocks = [
    {
      title: `${figure}, %: seeds (rings) and their mean`,
      rows: arms.map((arm) => ({ name: arm.name, values: values(arm), mean: average(values(arm)) })),
      format: percent,
    },
    {
      title: 'differences, points: mean and Student’s 95 % interval over seeds',
      rows: differences,
      format: points,
      line: 0,
    },
  ];
  writeFileSync(file, picture(figure, blocks));
}
