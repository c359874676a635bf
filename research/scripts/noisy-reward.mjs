// From which quality on a reward model of steps chooses better than chance: best of n by exact labels with noise, for each way in which
// the scores of steps become one. research/noisy-reward.md has results and what they cannot say.
//   node research/scripts/noisy-reward.mjs noise labels.jsonl [CORRELATION]      labels as `steptrain label` writes them
//   node research/scripts/noisy-reward.mjs judge labels.jsonl COLUMN scores.jsonl NAME=seed1.jsonl,seed2.jsonl …
//     by real judges instead, as `steptrain score` writes them, and by the same scores shuffled over the steps of a solution
//     and over the samples of a problem; with the differences between every two judges. NAME:OTHER=… reads column OTHER.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { extractAnswer } from '../../dist/answers/extract.js';
import { rewardQuality } from '../../dist/eval/reward-quality.js';
import { AGGREGATIONS, aggregated } from '../../dist/eval/solving/aggregation.js';
import { ballots, bestRight, votedRight } from '../../dist/eval/solving/votes.js';
import { BOOTSTRAP, resampledInterval, resampledProblems } from '../../dist/eval/statistics/bootstrap.js';
import { PhiloxStream } from '../../dist/random/philox.js';

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
const VOTES = ['min', 'mean', 'last'];
/** By which real judges are compared with each other. */
const COMPARED = ['min', 'mean', 'last', 'votes (min)'];

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
  const quality = rewardQuality(solutions, own);
  return {
    within: quality.within_problem.auc,
    against: quality.against_right_solutions.auc,
    place: quality.place_alone.auc,
  };
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
      if (seed < 3) aucs.push(measured(problems, scores));
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
    const of = (kind) => mean(aucs.map((each) => each[kind])).toFixed(3);
    return { name, aucs: [of('within'), of('against')], chosen };
  });
  for (const [title, control] of [
    ['one sample', single],
    ['the majority', majority],
  ]) {
    console.log(`Points above ${title}\n`);
    row(['judge', 'AUC within', 'against right solutions', ...ways]);
    row(['---', '---', '---', ...ways.map(() => '---')]);
    for (const { name, aucs, chosen } of found)
      row([name, ...aucs, ...ways.map((way) => gain(chosen[way], control))]);
    console.log();
  }
  const spreads = found.flatMap(({ chosen }) => ways.map((way) => deviation(chosen[way].map(mean))));
  console.log(`standard deviation over seeds: at most ${percent(Math.max(...spreads))} points`);
  return found;
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

/** A judge is a file, or several as its seeds. */
function judge(path, column, ...named) {
  const problems = problemsOf(path);
  const judges = named.map((text) => {
    const at = text.indexOf('=');
    const [name, own = column] = (at < 0 ? text : text.slice(0, at)).split(':');
    const seeds = text
      .slice(at + 1)
      .split(',')
      .map((file) => {
        const rows = rowsOf(file);
        const scores = problems.map((of) => of.map((sample) => rows[sample.at][own]));
        if (scores.flat().some((each, i) => each?.length !== problems.flat()[i].steps.length))
          throw new Error(`${file} has not one number in "${own}" for each step of ${path}`);
        return () => scores;
      });
    return { name, seeds };
  });
  const shuffled = judges.flatMap(({ name, seeds }) => [
    { name: `${name}, steps shuffled`, seeds: SEEDS.map((seed) => () => stepsShuffled(seeds[0](), seed)) },
    {
      name: `${name}, samples shuffled`,
      seeds: SEEDS.map((seed) => () => samplesShuffled(seeds[0](), seed)),
    },
  ]);
  differences(choose(problems, [...judges, ...shuffled]).slice(0, judges.length));
}

function inAnyOrder(values, draw) {
  const keys = values.map(() => draw.uniform());
  return values
    .map((_, i) => i)
    .sort((a, b) => keys[a] - keys[b])
    .map((i) => values[i]);
}

function stepsShuffled(scores, seed) {
  const draw = new PhiloxStream(seed, 0x73746570, 0);
  return scores.map((of) => of.map((each) => inAnyOrder(each, draw)));
}

function samplesShuffled(scores, seed) {
  const draw = new PhiloxStream(seed, 0x73616d70, 0);
  return scores.map((of) => inAnyOrder(of, draw));
}

/** Paired by problem, of the means over seeds. */
function differences(found) {
  console.log('\nDifferences, points\n');
  row(['', ...COMPARED]);
  row(['---', ...COMPARED.map(() => '---')]);
  const byProblem = (seeds) => seeds[0].map((_, p) => mean(seeds.map((values) => values[p])));
  for (const [i, from] of found.entries())
    for (const to of found.slice(i + 1))
      row([
        `${to.name} − ${from.name}`,
        ...COMPARED.map((way) => gain(to.chosen[way], byProblem(from.chosen[way]))),
      ]);
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
