// From which quality on a reward model of steps chooses better than chance: best of n by exact labels with noise, for each way in which
// the scores of steps become one. docs/evidence/noisy-reward.md has results and what they cannot say.
//   node scripts/noisy-reward.mjs noise labels.jsonl [CORRELATION]      labels as `steptrain label` writes them
//   node scripts/noisy-reward.mjs judge labels.jsonl COLUMN scores.jsonl…      by real judges instead, as `steptrain score` writes them
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { extractAnswer } from '../dist/answers/extract.js';
import { BOOTSTRAP, resampledInterval, resampledProblems } from '../dist/eval/bootstrap.js';
import { rewardQuality } from '../dist/eval/reward-quality.js';
import { AGGREGATIONS, aggregated } from '../dist/eval/solving/aggregation.js';
import { ballots, bestRight, votedRight } from '../dist/eval/solving/votes.js';
import { PhiloxStream } from '../dist/random/philox.js';

/** Within problems, with √2 times the quantile of the normal distribution there: how far apart right and wrong steps score. */
const QUALITIES = [
  [0.5, 0],
  [0.55, 0.1777],
  [0.65, 0.5449],
  [0.8, 1.1902],
  [0.95, 2.3262],
];
/** So far apart that no noise matters. */
const EXACT = 40;
const SEEDS = Array.from({ length: 20 }, (_, i) => i + 1);
/** Weighted by these. */
const VOTES = ['min', 'mean'];

const rowsOf = (path) =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
const hash = (text) => createHash('sha256').update(text).digest();
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;

/**
 * Whether each step counts as right. Steps from the first wrong one on are wrong; of a wrong solution in which no line was found
 * wrong the last is: its answer.
 */
function truths({ steps, outcome }) {
  const first = steps.findIndex(({ label }) => label === 0);
  const wrong = first < 0 && outcome !== 1 ? steps.length - 1 : first;
  return steps.map((_, i) => wrong < 0 || i < wrong);
}

/** Two independent normal numbers, by Box and Muller, that depend on a seed and a text alone. */
function normals(seed, text) {
  const draw = new PhiloxStream(seed, 0x6e6f6973, hash(text).readUIntBE(0, 6));
  const radius = Math.sqrt(-2 * Math.log(1 - draw.uniform()));
  const angle = 2 * Math.PI * draw.uniform();
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
}

/** The probability that each step is right, by a judge who sees the truth through noise and knows how noisy it is. */
function judged({ problem, steps, truth }, { distance, correlation, share, seed }) {
  const text = steps.map((step) => step.text);
  const [shared] = normals(seed, JSON.stringify([problem, 'whole', ...text]));
  return truth.map((right, i) => {
    // The same lines in two samples are judged alike.
    const [own] = normals(seed, JSON.stringify([problem, ...text.slice(0, i + 1)]));
    const noise = Math.sqrt(correlation) * shared + Math.sqrt(1 - correlation) * own;
    const seen = (right ? distance : -distance) / 2 + noise;
    return 1 / (1 + Math.exp(-(distance * seen + Math.log(share / (1 - share)))));
  });
}

function problemsOf(path) {
  const byProblem = new Map();
  let at = 0;
  for (const row of rowsOf(path)) {
    const text = row.steps.map((step) => step.text).join('\n');
    const answer = row.outcome === undefined ? null : (row.answered ?? extractAnswer(text)?.answer ?? null);
    const sample = { ...row, truth: truths(row), answer, right: row.outcome === 1, at: at++ };
    if (!byProblem.has(row.problem)) byProblem.set(row.problem, []);
    byProblem.get(row.problem).push(sample);
  }
  return [...byProblem.values()];
}

const percent = (share) => (100 * share).toFixed(1);
const signed = (share) => `${share < 0 ? '−' : '+'}${percent(Math.abs(share))}`;
const row = (cells) => console.log(`| ${cells.join(' | ')} |`);

/** Over problems, of differences. */
function interval(differences) {
  const values = Array.from(
    resampledProblems(differences.length, BOOTSTRAP),
    (weights) => sum(differences.map((each, i) => each * weights[i])) / differences.length,
  );
  return resampledInterval(values, differences.length, [-1, 1]);
}

/** Within problems, as `eval reward-model` measures it: of steps up to the first wrong one. */
function measured(problems, scores) {
  const solutions = problems.flatMap((samples, p) =>
    samples.map((sample, s) => ({
      record: {
        problem: sample.problem,
        steps: sample.steps.map(({ text }, i) => ({
          text,
          label: sample.truth[i - 1] === false ? null : Number(sample.truth[i]),
        })),
      },
      scores: scores[p][s],
    })),
  );
  const own = { scorer: '', data: [], unit: 'steps', seconds: 0, tokens: 0 };
  const { within_problem: within, place_alone: place } = rewardQuality(solutions, own);
  return { auc: within.auc, place: place.auc };
}

const placeAlone = (problems) =>
  measured(
    problems,
    problems.map((of) => of.map(({ steps }) => steps.map(() => 0))),
  ).place;

/** @param judges names, and by seed the scores by problem, sample and step */
function choose(problems, judges) {
  const samples = problems.flat();
  const all = problems.map((of) => of.map((_, i) => i));
  const cast = problems.map((of) => ballots(of));
  const single = problems.map((of) => mean(of.map(({ right }) => Number(right))));
  const majority = problems.map((_, p) => votedRight(cast[p], all[p]));
  const any = problems.map((of) => Number(of.some(({ right }) => right)));
  const isWrong = ({ label }) => label === 0;
  const byAnswer = samples.filter(({ steps, outcome }) => outcome !== 1 && !steps.some(isWrong));
  const lucky = samples.filter(({ right, truth }) => right && truth.includes(false));
  console.log(
    `${problems.length} problems, ${samples.length} samples, ${samples.flatMap(({ steps }) => steps).length} steps, ` +
      `${percent(shareOf(problems))} % right; AUC within a problem of how early a step stands: ${placeAlone(problems).toFixed(3)}\n` +
      `one sample ${percent(mean(single))} %, majority ${percent(mean(majority))} %, any of them ${percent(mean(any))} %; ` +
      `without a wrong line, and so by their answer alone: ${byAnswer.length}; right with a wrong line: ${lucky.length}\n`,
  );
  const ways = [...AGGREGATIONS, ...VOTES.map((way) => `votes (${way})`)];
  const found = judges.map(({ name, seeds }) => {
    const aucs = [];
    const chosen = Object.fromEntries(ways.map((way) => [way, []]));
    for (const [seed, scoresOf] of seeds.entries()) {
      const scores = scoresOf();
      if (seed < 3) aucs.push(measured(problems, scores).auc);
      const by = (way) => scores.map((of) => of.map((each) => aggregated(each, way)));
      for (const way of AGGREGATIONS) {
        const one = by(way);
        const scored = problems.map((of, p) => of.map((sample, s) => ({ ...sample, score: one[p][s] })));
        chosen[way].push(scored.map((of, p) => bestRight(of, all[p])));
      }
      for (const way of VOTES) {
        const weights = by(way);
        chosen[`votes (${way})`].push(problems.map((_, p) => votedRight(cast[p], all[p], weights[p])));
      }
    }
    return { name, auc: mean(aucs), chosen };
  });
  for (const [title, control] of [
    ['one sample', single],
    ['the majority', majority],
  ]) {
    console.log(`Points above ${title}\n`);
    row(['judge', 'AUC within', ...ways]);
    row(['---', '---', ...ways.map(() => '---')]);
    for (const { name, auc, chosen } of found)
      row([name, auc.toFixed(3), ...ways.map((way) => gain(chosen[way], control))]);
    console.log();
  }
  const spreads = found.flatMap(({ chosen }) => ways.map((way) => deviation(chosen[way].map(mean))));
  console.log(`standard deviation over seeds: at most ${percent(Math.max(...spreads))} points`);
}

const shareOf = (problems) => mean(problems.flat().flatMap(({ truth }) => truth.map(Number)));

function noise(path, correlation = 0) {
  const problems = problemsOf(path);
  const options = { correlation: Number(correlation), share: shareOf(problems) };
  const scoresOf = (distance, seed) => () =>
    problems.map((of) => of.map((sample) => judged(sample, { ...options, distance, seed })));
  choose(problems, [
    ...QUALITIES.map(([quality, distance]) => ({
      name: `noise ${quality}`,
      seeds: SEEDS.map((seed) => scoresOf(distance, seed)),
    })),
    { name: 'exact', seeds: [scoresOf(EXACT, 0)] },
  ]);
}

/** Each file by itself, and all of them as seeds of one judge. */
function judge(path, column, ...files) {
  const problems = problemsOf(path);
  const seeds = files.map((file) => {
    const rows = rowsOf(file);
    return () => problems.map((of) => of.map(({ at }) => rows[at][column]));
  });
  const each = files.map((name, i) => ({ name, seeds: [seeds[i]] }));
  choose(problems, files.length > 1 ? [...each, { name: 'mean', seeds }] : each);
}

/** Mean over the seeds, with the interval over problems. */
function gain(bySeed, control) {
  const gains = control.map((of, p) => mean(bySeed.map((values) => values[p])) - of);
  const [low, high] = interval(gains);
  return `${signed(mean(gains))} (${signed(low)} to ${signed(high)})`;
}

function deviation(values) {
  const middle = mean(values);
  return Math.sqrt(sum(values.map((value) => (value - middle) ** 2)) / Math.max(1, values.length - 1));
}

const [command, ...given] = process.argv.slice(2);
const commands = { noise, judge };
if (!commands[command]) throw new Error('expected noise or judge');
commands[command](...given);
