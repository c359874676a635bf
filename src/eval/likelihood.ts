/** How likely the base finds a step: evidence beside a verdict, where the base writes such solutions itself. */
import { type Dataset, indices } from '../data/dataset.js';
import type { Decoder } from '../models/decoder.js';
import type { LikelihoodWeights } from '../scoring/settings.js';
import { groupBySize } from '../sequences/batching.js';
import { overGroups } from '../sequences/divided.js';
import { scoreRows } from '../sequences/forward.js';
import type { AnswerRow, VerdictSequence } from '../sequences/sequence.js';
import type { JudgedVerdict } from './judged-verdict.js';
import { logisticRegression } from './logistic.js';

/** Natural logarithms, none below {@link FLOOR}. */
export interface StepLikelihood {
  /** Of the least likely token of the step and of those before it. */
  readonly least: number;
  /** Of those before it alone; 0 where there is none. What follows from a wrong step is likely by itself. */
  readonly before: number;
}

/** A token of probability 0.05 is as surprising as any: the floor with the least log-loss on validation steps of word problems. */
const FLOOR = -3;

/** Words of certain models would outweigh everything. */
const MAX_ODDS = 8;

/** By sequence, then by step. */
export type StepLikelihoods = readonly ReadonlyMap<number, StepLikelihood>[];

export interface LikelihoodOptions {
  readonly microBatchTokens: number;
  readonly signal?: AbortSignal | undefined;
}

/** Of every step that has a verdict, by the decoder's own weights without an adapter; undefined if the signal stopped it. */
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

/**
 * Weights by logistic regression on labelled steps; undefined where they are all of one class.
 *
 * @param alone leaves the verdict words out, whose weight is then 0
 */
export function fitLikelihood(
  judged: readonly JudgedVerdict[],
  likelihoods: StepLikelihoods,
  { alone = false }: { readonly alone?: boolean } = {},
): LikelihoodWeights | undefined {
  const rows = judged.flatMap((verdict) => {
    const likelihood = likelihoodOf(verdict, likelihoods);
    return likelihood && !verdict.unreadable ? [{ verdict, likelihood }] : [];
  });
  const labels = rows.map(({ verdict }) => verdict.label);
  if (new Set(labels).size < 2) return undefined;
  const features = rows.map(({ verdict, likelihood: { least, before } }) =>
    alone ? [1, least, before] : [1, least, before, oddsOf(verdict)],
  );
  const [constant = 0, least = 0, before = 0, verdict = 0] = logisticRegression(features, labels);
  return { constant, verdict, least, before };
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
    const { constant, verdict, least, before } = weights;
    const odds = constant + verdict * oddsOf(found) + least * likelihood.least + before * likelihood.before;
    const probability = 1 / (1 + Math.exp(-odds));
    return {
      ...found,
      verdict: probability >= enough ? 1 : 0,
      probability,
      logPositive: -Math.log1p(Math.exp(-odds)),
      logNegative: -Math.log1p(Math.exp(odds)),
    };
  });
}

/** The words' verdicts on a part, and the likelihoods of its steps. */
export interface JudgedPart {
  readonly judged: readonly JudgedVerdict[];
  readonly likelihoods: StepLikelihoods;
}

/** The same steps in the same order by other judges than the words. */
export interface LikelihoodVerdicts {
  readonly weights: LikelihoodWeights;
  readonly both: readonly JudgedVerdict[];
  /** By the likelihood alone, with weights of its own; absent where there are no validation steps of both classes to fit them. */
  readonly alone?: readonly JudgedVerdict[];
}

/**
 * The test part by words and likelihood, and by the likelihood.
 *
 * @param weights default: fitted on the validation part; undefined is returned where it has not both classes
 */
export function likelihoodVerdicts(
  { validation, test }: Readonly<Record<'validation' | 'test', JudgedPart>>,
  {
    threshold,
    weights,
  }: { readonly threshold: 'greedy' | number; readonly weights?: LikelihoodWeights | undefined },
): LikelihoodVerdicts | undefined {
  const fitted = (alone: boolean) => fitLikelihood(validation.judged, validation.likelihoods, { alone });
  const by = (chosen: LikelihoodWeights) => withLikelihood(test.judged, test.likelihoods, chosen, threshold);
  const together = weights ?? fitted(false);
  const ofBase = fitted(true);
  return together && { weights: together, both: by(together), ...(ofBase ? { alone: by(ofBase) } : {}) };
}

const likelihoodOf = ({ solution, step }: JudgedVerdict, likelihoods: StepLikelihoods) =>
  likelihoods[solution]?.get(step);

const oddsOf = ({ logPositive, logNegative }: JudgedVerdict) =>
  Math.max(-MAX_ODDS, Math.min(MAX_ODDS, logPositive - logNegative));
