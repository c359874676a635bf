/**
 * The base's likelihood of a step: evidence that is weighed with a verdict, where the base writes such solutions
 * itself.
 */
import { type Dataset, indices } from '../../data/dataset.js';
import { calculationsIn } from '../../data/equations/calculations.js';
import type { Decoder } from '../../models/decoder.js';
import { log } from '../../native/elementary.js';
import type { StepLabel } from '../../records/record.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { scoreRows } from '../../sequences/forward.js';
import type { AnswerRow, VerdictSequence } from '../../sequences/sequence.js';
import type { LikelihoodWeights } from '../settings.js';
import { type JudgedVerdict, verdictOfOdds } from './judged.js';

/** Natural logarithms, none below {@link FLOOR}; where calculations are computed, 0 or {@link WRONG}. */
export interface StepLikelihood {
  /**
   * Value of the least likely token of the step and of those before it. With calculations, the value of the step alone.
   */
  readonly least: number;
  /**
   * Value of the steps before it alone; 0 where there is none. A step that follows from a wrong one is likely by
   * itself.
   */
  readonly before: number;
  /** Set where a calculation of the step was computed. */
  readonly checked?: true;
}

/** A token of probability 0.05 is as surprising as any: the floor with the least log-loss on validation steps of word problems. */
const FLOOR = -3;

/** The value of a calculation whose stated result is wrong. */
export const WRONG = -1;

/** Words of certain models would outweigh everything. */
const MAX_ODDS = 8;

/** Likelihoods by sequence, then by step. */
export type StepLikelihoods = readonly ReadonlyMap<number, StepLikelihood>[];

export interface LikelihoodOptions {
  readonly microBatchTokens: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Likelihoods of every step that has a verdict, under the decoder's own weights without an adapter; undefined if the
 * signal stopped it.
 */
export async function stepLikelihoods(
  decoder: Decoder,
  sequences: Dataset<VerdictSequence>,
  { microBatchTokens, signal }: LikelihoodOptions,
): Promise<StepLikelihoods | undefined> {
  const length = (i: number) => sequences.get(i).solution.trunk.ids.length;
  const groups = groupBySize(indices(sequences), length, microBatchTokens);
  const ofGroup = async (group: readonly number[]) => {
    const items = group.map((i) => readSteps(sequences.get(i)));
    const logprobs = await logprobsOf(decoder, items);
    let at = 0;
    return items.map(({ spans }) => {
      const bySteps = new Map<number, StepLikelihood>();
      let before = 0;
      for (const { step, tokens } of spans) {
        const least = Math.max(FLOOR, Math.min(before, ...logprobs.subarray(at, at + tokens)));
        at += tokens;
        bySteps.set(step, { least, before });
        before = least;
      }
      return bySteps;
    });
  };
  // Groups are consecutive.
  return (await overGroups(decoder.device, groups, ofGroup, { signal }))?.flat();
}

async function logprobsOf(decoder: Decoder, items: readonly ReadSteps[]): Promise<Float32Array> {
  if (items.every(({ rows }) => rows.length === 0)) return new Float32Array();
  const scores = decoder.device.scope(() => scoreRows(decoder, {}, items), 'likelihood');
  try {
    return await scores.logprobs.readFloats();
  } finally {
    for (const tensor of Object.values(scores)) tensor.dispose();
  }
}

type ReadSteps = ReturnType<typeof readSteps>;

/** The trunk by itself, as far as it is judged, and the rows that predict the tokens of its steps. */
function readSteps({ solution: { trunk, verdicts }, rowId }: VerdictSequence) {
  const length = Math.max(0, ...verdicts.map(({ at }) => at));
  const ids = Array.from(trunk.ids.slice(0, length));
  const rows: AnswerRow[] = [];
  const spans = trunk.steps
    .filter(({ end }) => end <= length)
    .map(({ step, start, end }) => {
      const first = Math.max(1, start);
      for (let t = first; t < end; t++) rows.push({ row: t - 1, token: ids[t] as number });
      return { step, tokens: end - first };
    });
  const positions = ids.map((_, i) => i);
  return { sequence: { ids, positions, branch: undefined, rowId }, rows, spans };
}

/** Whether the calculations of each step hold, by exact arithmetic; a step without any counts neither way. */
export function stepCalculations(
  solutions: Iterable<{ readonly steps: readonly { readonly text: string }[] }>,
): StepLikelihoods {
  return Array.from(solutions, ({ steps }) => {
    let before = 0;
    return new Map(
      steps.map(({ text }, step): [number, StepLikelihood] => {
        const found = calculationsIn(text);
        const least = found.every(({ holds }) => holds) ? 0 : WRONG;
        const own = { least, before, ...(found.length > 0 ? { checked: true as const } : {}) };
        before = Math.min(before, least);
        return [step, own];
      }),
    );
  });
}

/**
 * Adds the labelled steps that the model did not read, such as those beyond its longest sequence, where one of their
 * calculations was computed. Their words count as undecided.
 */
export function withUnread(
  judged: readonly JudgedVerdict[],
  likelihoods: StepLikelihoods,
  labelOf: (solution: number, step: number) => StepLabel | undefined,
): readonly JudgedVerdict[] {
  const read = new Set(judged.map(({ solution, step }) => `${solution} ${step}`));
  const unread = likelihoods.flatMap((steps, solution) =>
    [...steps].flatMap(([step, { checked }]): JudgedVerdict[] => {
      const label = labelOf(solution, step) ?? null;
      if (!checked || label === null || read.has(`${solution} ${step}`)) return [];
      const half = { probability: 0.5, logPositive: log(0.5), logNegative: log(0.5) };
      return [{ solution, step, label, verdict: undefined, ...half, unread: true }];
    }),
  );
  if (unread.length === 0) return judged;
  return [...judged, ...unread].sort((a, b) => a.solution - b.solution || a.step - b.step);
}

/** Verdicts by the weights; one that cannot be read stays as it is. */
export function withLikelihood(
  judged: readonly JudgedVerdict[],
  likelihoods: StepLikelihoods,
  weights: LikelihoodWeights,
  threshold: 'greedy' | number,
): JudgedVerdict[] {
  const enough = threshold === 'greedy' ? 0.5 : threshold;
  return judged.map((found): JudgedVerdict => {
    const likelihood = likelihoodOf(found, likelihoods);
    if (found.unreadable || !likelihood) return found;
    return { ...found, ...verdictOfOdds(logOdds(found, likelihood, weights), enough) };
  });
}

/** Log-odds of a right step, from words and likelihood. */
export const logOdds = (
  step: Pick<JudgedVerdict, 'logPositive' | 'logNegative'>,
  likelihood: StepLikelihood,
  { constant, verdict, least, before, unchecked = 0 }: LikelihoodWeights,
) =>
  constant +
  verdict * oddsOf(step) +
  least * likelihood.least +
  before * likelihood.before +
  (likelihood.checked ? 0 : unchecked);

/** Undefined of a step that was not read. */
export const likelihoodOf = (
  { solution, step }: Pick<JudgedVerdict, 'solution' | 'step'>,
  likelihoods: StepLikelihoods,
) => likelihoods[solution]?.get(step);

/** Log-odds of the words, cut off at ±{@link MAX_ODDS}. */
export const oddsOf = ({ logPositive, logNegative }: Pick<JudgedVerdict, 'logPositive' | 'logNegative'>) =>
  Math.max(-MAX_ODDS, Math.min(MAX_ODDS, logPositive - logNegative));
