/** Trust in a reward model: whether it ranks right steps above wrong ones of the same problem. */

import { z } from 'zod';
import { grouped } from '../native/grouped.js';
import { plural } from '../native/shown.js';
import { PhiloxStream, shuffled } from '../random/philox.js';
import type { StepRecord } from '../records/record.js';
import { problemText } from '../records/same-text.js';
import { BOOTSTRAP, resample, resampledInterval, SHARE } from './statistics/bootstrap.js';
import { calibration } from './statistics/calibration.js';
import { rocAuc } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';

/** A reward model is refused where its interval within problems does not lie above this AUC. */
export const MIN_AUC = 0.55;

const interval = z.tuple([z.number(), z.number()]);
const ranking = z.strictObject({
  /** Pairs of a right and a wrong one that are compared. */
  pairs: z.number(),
  auc: z.number().optional(),
  /** Bootstrap over problems, 95 %. */
  interval: interval.optional(),
});

const quality = z.strictObject({
  scorer: z.string(),
  data: z.array(z.string()),
  /** The ranked unit: steps or whole solutions. */
  unit: z.enum(['steps', 'solutions']),
  problems: z.number(),
  /** How many of the problems the run of the weights also trained on, where it is known. */
  trained: z.number().optional(),
  scored: z.number(),
  wrong: z.number(),
  unscored: z.number(),
  /** All pairs. */
  overall: ranking,
  /** Pairs of the same problem. */
  within_problem: ranking,
  /** The same ranking by position alone: an earlier step has a higher score. */
  place_alone: ranking,
  /**
   * Pairs of a wrong step and a step of another solution of the same problem without wrong ones, as in choosing among
   * solutions.
   */
  against_right_solutions: ranking.optional(),
  /** Pairs of the same tenth of lengths. */
  within_length: ranking,
  /** Share of the solutions with an error whose lowest score is that of the first wrong step, and of a draw. */
  first_error: z.strictObject({ n: z.number(), found: z.number(), chance: z.number() }).optional(),
  /** The ranking within problems with the scores of each problem dealt out anew: what a measurement of nothing gives. */
  shuffled: ranking.optional(),
  /** Verdicts beside the labels. */
  agreement: z
    .strictObject({
      n: z.number(),
      accuracy: z.number(),
      /** Cohen's: 0 is the agreement of two that judge by chance, each as often right as they do. */
      kappa: z.number().optional(),
      /** Labelled steps without a verdict. */
      unjudged: z.number(),
    })
    .optional(),
  /** Probabilities beside the labels; absent for rewards without bounds. */
  calibration: z.strictObject({ n: z.number(), ece: z.number(), brier: z.number() }).optional(),
  /** Spearman's correlation of the scores with the number of characters of a step, and with its position. */
  correlation: z.strictObject({ length: z.number().optional(), place: z.number().optional() }),
  /** Share of the pairs of a problem with the same score. */
  ties: z.number().optional(),
  cost: z.strictObject({
    seconds: z.number(),
    tokens: z.number(),
    ms_per_solution: z.number(),
    ms_per_step: z.number().optional(),
  }),
  /** Hash of the weights that were judged. */
  weights: z.string().optional(),
});

export type RewardQuality = z.output<typeof quality>;
type Ranking = z.output<typeof ranking>;

/** @throws ZodError for another file */
export const parseRewardQuality = (value: unknown): RewardQuality => quality.parse(value);

export interface ScoredSolution {
  readonly record: Pick<StepRecord, 'problem' | 'steps' | 'outcome'>;
  /** Scores by step; null for a step without one. */
  readonly scores: readonly (number | null)[];
  /** Verdicts by step, where there are some. */
  readonly verdicts?: readonly (1 | 0 | null)[];
  /** Probabilities by step, where the scores have some. */
  readonly probabilities?: readonly (number | null)[];
}

interface Item {
  readonly problem: string;
  readonly label: 0 | 1;
  readonly score: number;
  readonly length: number;
  readonly place: number;
  /** Whether the step's solution has no wrong step. */
  readonly apart: boolean;
}

export interface QualityOptions extends Pick<RewardQuality, 'scorer' | 'unit'> {
  readonly data: readonly string[];
  readonly seconds: number;
  readonly tokens: number;
  readonly weights?: string | undefined;
  readonly trained?: number | undefined;
}

/** Ranks labelled steps, or, with `unit: solutions`, solutions with outcomes by the score of their last step. */
export function rewardQuality(solutions: readonly ScoredSolution[], options: QualityOptions): RewardQuality {
  const { unit, seconds, tokens, weights, trained, scorer, data } = options;
  const items = solutions.flatMap((solution) =>
    unit === 'steps' ? stepItems(solution) : outcomeItem(solution),
  );
  const scored = items.filter((item): item is Item => item.score !== null);
  const byProblem = grouped(scored, ({ problem }) => problemText(problem));
  const within = [...byProblem.values()].map(comparedPairs);
  const places = [...byProblem.values()].map((own) =>
    comparedPairs(own.map((item) => ({ ...item, score: -item.place }))),
  );
  const apart = [...byProblem.values()].map((own) =>
    comparedPairs(own.filter((item) => item.label === 0 || item.apart)),
  );
  const pairs = within.reduce((sum, each) => sum + each.pairs, 0);
  const errors = unit === 'steps' ? firstErrors(solutions) : undefined;
  const dealt = [...byProblem.values()].map((own, i) => comparedPairs(dealtOut(own, i)));
  const judged = unit === 'steps' ? agreementWithLabels(solutions) : undefined;
  const steps = solutions.reduce((sum, { record }) => sum + record.steps.length, 0);
  return {
    scorer,
    data: [...data],
    unit,
    problems: byProblem.size,
    ...optional('trained', trained),
    scored: scored.length,
    wrong: scored.filter(({ label }) => label === 0).length,
    unscored: items.length - scored.length,
    overall: rankingOf(scored),
    within_problem: pooled(within),
    place_alone: pooled(places),
    ...(unit === 'steps' ? { against_right_solutions: pooled(apart) } : {}),
    within_length: pooled([...tenths(scored)].map(comparedPairs)),
    ...(errors ? { first_error: errors } : {}),
    ...(pairs > 0 ? { shuffled: pooled(dealt) } : {}),
    ...judged,
    correlation: {
      ...optional(
        'length',
        spearman(
          scored.map(({ score }) => score),
          scored.map(({ length }) => length),
        ),
      ),
      ...optional(
        'place',
        spearman(
          scored.map(({ score }) => score),
          scored.map(({ place }) => place),
        ),
      ),
    },
    ...(pairs > 0 ? { ties: within.reduce((sum, each) => sum + each.ties, 0) / pairs } : {}),
    cost: {
      seconds,
      tokens,
      ms_per_solution: (1000 * seconds) / Math.max(1, solutions.length),
      ms_per_step: (1000 * seconds) / Math.max(1, steps),
    },
    ...(weights === undefined ? {} : { weights }),
  };
}

/** Keeps these draws apart from others of the seed. */
const DEALING = 0x7a1e;

/** The items of a problem with their scores in another order. */
function dealtOut(items: readonly Item[], problem: number): Item[] {
  const scores = shuffled(
    new PhiloxStream(0, DEALING, problem),
    items.map(({ score }) => score),
  );
  return items.map((item, i) => ({ ...item, score: scores[i] as number }));
}

function agreementWithLabels(
  solutions: readonly ScoredSolution[],
): Pick<RewardQuality, 'agreement' | 'calibration'> {
  const steps = solutions.flatMap(({ record, verdicts, probabilities }) =>
    record.steps.flatMap(({ label }, i) =>
      label === null
        ? []
        : [{ label, verdict: verdicts?.[i] ?? undefined, probability: probabilities?.[i] ?? undefined }],
    ),
  );
  const judged = steps.filter(({ verdict }) => verdict !== undefined);
  const probable = steps.flatMap(({ label, probability }) =>
    probability === undefined ? [] : [{ label, probability }],
  );
  const found = calibration(probable);
  return {
    ...(judged.length > 0
      ? {
          agreement: {
            ...{ n: judged.length, unjudged: steps.length - judged.length },
            accuracy: judged.filter(({ label, verdict }) => label === verdict).length / judged.length,
            ...optional('kappa', cohensKappa(judged as readonly { label: 0 | 1; verdict: 0 | 1 }[])),
          },
        }
      : {}),
    ...(found ? { calibration: { n: probable.length, ece: found.ece, brier: found.brier } } : {}),
  };
}

/** Cohen's kappa (1960) of verdicts with labels; undefined where both always say the same one thing. */
export function cohensKappa(steps: readonly { readonly label: 0 | 1; readonly verdict: 0 | 1 }[]) {
  const share = (of: (step: (typeof steps)[number]) => boolean) => steps.filter(of).length / steps.length;
  const [right, said] = [share(({ label }) => label === 1), share(({ verdict }) => verdict === 1)];
  const byChance = right * said + (1 - right) * (1 - said);
  return byChance === 1
    ? undefined
    : (share(({ label, verdict }) => label === verdict) - byChance) / (1 - byChance);
}

type Candidate = Omit<Item, 'score'> & { readonly score: number | null };

function stepItems({ record: { problem, steps }, scores }: ScoredSolution): Candidate[] {
  const apart = !steps.some(({ label }) => label === 0);
  return steps.flatMap(({ label, text }, place) =>
    label === null
      ? []
      : [{ problem, label, score: scores[place] ?? null, length: text.length, place, apart }],
  );
}

function outcomeItem({ record: { problem, steps, outcome }, scores }: ScoredSolution): Candidate[] {
  if (outcome === undefined) return [];
  const length = steps.reduce((sum, { text }) => sum + text.length, 0);
  const score = scores.at(-1) ?? null;
  return [{ problem, label: outcome, score, length, place: steps.length, apart: outcome === 1 }];
}

interface Pairs {
  readonly pairs: number;
  /** Ties count half. */
  readonly wins: number;
  readonly ties: number;
}

function comparedPairs(items: readonly Item[]): Pairs {
  const positives = items.filter(({ label }) => label === 1).length;
  const pairs = positives * (items.length - positives);
  const auc = aucOf(items);
  if (auc === undefined) return { pairs: 0, wins: 0, ties: 0 };
  const ties = [...grouped(items, ({ score }) => score).values()].reduce((sum, same) => {
    const right = same.filter(({ label }) => label === 1).length;
    return sum + right * (same.length - right);
  }, 0);
  return { pairs, wins: auc * pairs, ties };
}

const aucOf = (items: readonly Item[]) =>
  rocAuc(
    items.map(({ score }) => score),
    items.map(({ label }) => label),
  );

function rankingOf(items: readonly Item[]): Ranking {
  const positives = items.filter(({ label }) => label === 1).length;
  return { pairs: positives * (items.length - positives), ...optional('auc', aucOf(items)) };
}

/** All pairs of all groups together, with an interval over the groups. */
function pooled(groups: readonly Pairs[]): Ranking {
  const some = groups.filter(({ pairs }) => pairs > 0);
  const pairs = some.reduce((sum, each) => sum + each.pairs, 0);
  if (pairs === 0) return { pairs };
  const auc = some.reduce((sum, { wins }) => sum + wins, 0) / pairs;
  if (some.length < 2) return { pairs, auc };
  const values = resample(some.length, BOOTSTRAP, (weights) => {
    let [won, all] = [0, 0];
    some.forEach((each, i) => {
      won += (weights[i] as number) * each.wins;
      all += (weights[i] as number) * each.pairs;
    });
    return won / all;
  });
  const found = resampledInterval(values, some.length, SHARE);
  return { pairs, auc, ...(found ? { interval: found } : {}) };
}

function* tenths(items: readonly Item[]): Generator<Item[]> {
  const sorted = [...items].sort((a, b) => a.length - b.length);
  for (let i = 0; i < 10; i++)
    yield sorted.slice(Math.floor((i * sorted.length) / 10), Math.floor(((i + 1) * sorted.length) / 10));
}

function firstErrors(solutions: readonly ScoredSolution[]) {
  let [n, found, chance] = [0, 0, 0];
  for (const { record, scores } of solutions) {
    const first = record.steps.findIndex(({ label }) => label === 0);
    const own = record.steps.flatMap(({ label }, i) =>
      label === null || scores[i] === null || scores[i] === undefined ? [] : [{ i, score: scores[i] }],
    );
    if (own.length < 2 || !own.some(({ i }) => i === first)) continue;
    const lowest = Math.min(...own.map(({ score }) => score));
    const at = own.filter(({ score }) => score === lowest);
    n++;
    chance += 1 / own.length;
    if (at.some(({ i }) => i === first)) found += 1 / at.length;
  }
  return n === 0 ? undefined : { n, found: found / n, chance: chance / n };
}

/** Spearman's correlation; undefined where one side never varies. */
export function spearman(a: readonly number[], b: readonly number[]): number | undefined {
  const [x, y] = [ranks(a), ranks(b)];
  const mean = (a.length + 1) / 2;
  let [xy, xx, yy] = [0, 0, 0];
  x.forEach((rank, i) => {
    const [dx, dy] = [rank - mean, (y[i] as number) - mean];
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  });
  return xx === 0 || yy === 0 ? undefined : xy / Math.sqrt(xx * yy);
}

/** Ranks from 1; ties get their mean rank. */
function ranks(values: readonly number[]): number[] {
  const order = values.map((_, i) => i).sort((a, b) => (values[a] as number) - (values[b] as number));
  const found = new Array<number>(values.length);
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end < order.length && values[order[end] as number] === values[order[start] as number]) end++;
    for (let i = start; i < end; i++) found[order[i] as number] = (start + 1 + end) / 2;
    start = end;
  }
  return found;
}

const optional = <Key extends string>(key: Key, value: number | undefined) =>
  (value === undefined ? {} : { [key]: value }) as { readonly [Name in Key]?: number };

/** Whether runs may learn from it: `unknown` where no problem has both classes. */
export function standingOf({
  within_problem: { interval, auc },
}: RewardQuality): 'strong' | 'weak' | 'unknown' {
  if (auc === undefined) return 'unknown';
  return interval !== undefined && interval[0] > MIN_AUC ? 'strong' : 'weak';
}

/** Within problems, as a sentence says it. */
export function withinProblems({ within_problem: { auc = 0.5, interval } }: RewardQuality): string {
  const between = interval ? ` (95 % interval ${percent(interval[0])} to ${percent(interval[1])})` : '';
  return `AUC within a problem ${percent(auc)}${between}`;
}

/** The sentence for a score that is not shown to beat the position of a step alone; undefined for one that is. */
export function placeSentence(of: RewardQuality): string | undefined {
  const { within_problem: own, place_alone: place } = of;
  if (place.auc === undefined || own.interval === undefined || own.interval[0] > place.auc) return undefined;
  return `it is not shown to know more than how early a step stands, which alone has an AUC of ${percent(place.auc)} and chooses no better solutions; several solutions of each problem would tell`;
}

/** Rows of a table; the first has the titles. */
export function qualityRows(of: RewardQuality): string[][] {
  const row = (title: string, { pairs, auc, interval }: Ranking) => [
    title,
    auc === undefined ? '–' : percent(auc),
    interval ? `${percent(interval[0])}-${percent(interval[1])}` : '–',
    String(pairs),
  ];
  return [
    ['AUC', '%', '95 %', 'pairs'],
    row('within a problem', of.within_problem),
    row('place alone, within a problem', of.place_alone),
    ...(of.against_right_solutions ? [row('against right solutions', of.against_right_solutions)] : []),
    ...(of.shuffled ? [row('shuffled within a problem', of.shuffled)] : []),
    row('within a tenth of lengths', of.within_length),
    row('over all', of.overall),
  ];
}

export function qualitySentences(of: RewardQuality): string[] {
  const { first_error: first, correlation, ties, cost, unit, agreement, calibration: sure } = of;
  const place = placeSentence(of);
  const signed = (value: number | undefined) => (value === undefined ? 'none' : value.toFixed(2));
  return [
    `${of.scored} ${unit} of ${plural(of.problems, 'problem')}, ${of.wrong} wrong${of.unscored > 0 ? `; ${of.unscored} without a score` : ''}`,
    ...(of.trained
      ? [
          `${plural(of.trained, 'problem')} of these were trained on: nothing here says what it is worth on others`,
        ]
      : []),
    ...(first
      ? [
          `first error: the lowest score of ${percent(first.found)} % of ${first.n} solutions with one (a draw: ${percent(first.chance)} %)`,
        ]
      : []),
    ...(agreement
      ? [
          `verdicts agree with ${percent(agreement.accuracy)} % of ${agreement.n} labels${agreement.kappa === undefined ? '' : `, Cohen's κ ${agreement.kappa.toFixed(2)}`}${agreement.unjudged > 0 ? `; ${agreement.unjudged} have no verdict` : ''}`,
        ]
      : []),
    ...(sure
      ? [`calibration: expected error ${percent(sure.ece)} %, Brier score ${sure.brier.toFixed(3)}`]
      : []),
    `rank correlation of the score: with length ${signed(correlation.length)}, with the place ${signed(correlation.place)}`,
    ...(place === undefined ? [] : [place]),
    ...(ties === undefined ? [] : [`ties within a problem: ${percent(ties)} % of the pairs`]),
    `cost: ${cost.ms_per_solution.toFixed(1)} ms a solution${cost.ms_per_step === undefined ? '' : `, ${cost.ms_per_step.toFixed(2)} ms a step`}, ${cost.tokens} tokens in ${cost.seconds.toFixed(1)} s`,
  ];
}
