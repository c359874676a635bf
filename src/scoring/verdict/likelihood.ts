/** How likely the base finds a step: evidence beside a verdict, where the base writes such solutions itself. */
import { type Dataset, indices } from '../../data/dataset.js';
import { equationsIn, plainSigns } from '../../data/equations/equations.js';
import type { Decoder } from '../../models/decoder.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { scoreRows } from '../../sequences/forward.js';
import type { AnswerRow, VerdictSequence } from '../../sequences/sequence.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { LikelihoodWeights } from '../settings.js';
import type { JudgedVerdict } from './judged.js';

/** Natural logarithms, none below {@link FLOOR}; where calculations are computed, 0 or {@link WRONG}. */
export interface StepLikelihood {
  /** Of the least likely token of the step and of those before it; of calculations of the step alone. */
  readonly least: number;
  /** Of those before it alone; 0 where there is none. What follows from a wrong step is likely by itself. */
  readonly before: number;
}

/** A token of probability 0.05 is as surprising as any: the floor with the least log-loss on validation steps of word problems. */
const FLOOR = -3;

/** What a calculation counts as that does not come to the result that it states. */
export const WRONG = -1;

/** Words of certain models would outweigh everything. */
const MAX_ODDS = 8;

/** By sequence, then by step. */
export type StepLikelihoods = readonly ReadonlyMap<number, StepLikelihood>[];

export interface LikelihoodOptions {
  /** Asks no base: the calculations that a step writes out are computed, in tokens of this tokenizer. Default: the base is asked. */
  readonly calculations?: Pick<Tokenizer, 'decode'> | undefined;
  readonly microBatchTokens: number;
  readonly signal?: AbortSignal | undefined;
}

/** Of every step that has a verdict, by the decoder's own weights without an adapter; undefined if the signal stopped it. */
export async function stepLikelihoods(
  decoder: Decoder,
  sequences: Dataset<VerdictSequence>,
  { microBatchTokens, signal, calculations }: LikelihoodOptions,
): Promise<StepLikelihoods | undefined> {
  if (calculations) return signal?.aborted ? undefined : stepCalculations(sequences, calculations);
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

/** By exact arithmetic whether the calculations of a step hold; a step without any says nothing. */
function stepCalculations(
  sequences: Dataset<VerdictSequence>,
  tokenizer: Pick<Tokenizer, 'decode'>,
): StepLikelihoods {
  return Array.from(sequences, ({ solution: { trunk } }) => {
    const bySteps = new Map<number, StepLikelihood>();
    let before = 0;
    for (const { step, start, end } of trunk.steps) {
      const { equations } = equationsIn(plainSigns(tokenizer.decode(trunk.ids.subarray(start, end))));
      const least = equations.every(({ holds }) => holds) ? 0 : WRONG;
      bySteps.set(step, { least, before });
      before = Math.min(before, least);
    }
    return bySteps;
  });
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
    const odds = logOdds(found, likelihood, weights);
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

/** Of a right step, by words and likelihood. */
export const logOdds = (
  step: Pick<JudgedVerdict, 'logPositive' | 'logNegative'>,
  likelihood: StepLikelihood,
  { constant, verdict, least, before }: LikelihoodWeights,
) => constant + verdict * oddsOf(step) + least * likelihood.least + before * likelihood.before;

/** Undefined of a step that was not read. */
export const likelihoodOf = (
  { solution, step }: Pick<JudgedVerdict, 'solution' | 'step'>,
  likelihoods: StepLikelihoods,
) => likelihoods[solution]?.get(step);

/** Of the words. */
export const oddsOf = ({ logPositive, logNegative }: Pick<JudgedVerdict, 'logPositive' | 'logNegative'>) =>
  Math.max(-MAX_ODDS, Math.min(MAX_ODDS, logPositive - logNegative));
