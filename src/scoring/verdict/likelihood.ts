/** How likely the base finds a step: evidence beside a verdict, where the base writes such solutions itself. */
import { type Dataset, indices } from '../../data/dataset.js';
import type { Decoder } from '../../models/decoder.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { scoreRows } from '../../sequences/forward.js';
import type { AnswerRow, VerdictSequence } from '../../sequences/sequence.js';
import { digitTokens, tellsNumber } from '../../tokenizer/number-tokens.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { LikelihoodWeights } from '../settings.js';
import type { JudgedVerdict } from './judged.js';

/**
 * Natural logarithms, none below the floor. Of all tokens: log-probabilities. Of numbers, where a step's words are anybody's: of
 * the tokens with a digit and those that end a number, each by how much less likely it is than the base expected, log p + entropy.
 */
export interface StepLikelihood {
  /** Of the least likely token of the step; of all tokens also of those before it. */
  readonly least: number;
  /** Of those before it alone; 0 where there is none. What follows from a wrong step is likely by itself. */
  readonly before: number;
}

/** A token of probability 0.05 is as surprising as any: the floor with the least log-loss on validation steps of word problems. */
const FLOOR = -3;

/** The same of numbers. */
const NUMBER_FLOOR = -6;

/** Words of certain models would outweigh everything. */
const MAX_ODDS = 8;

/** By sequence, then by step. */
export type StepLikelihoods = readonly ReadonlyMap<number, StepLikelihood>[];

export interface LikelihoodOptions {
  /** Reads numbers alone, in tokens of this tokenizer. Default: all tokens. */
  readonly numbers?: Pick<Tokenizer, 'tokenBytes'> | undefined;
  readonly microBatchTokens: number;
  readonly signal?: AbortSignal | undefined;
}

/** Of every step that has a verdict, by the decoder's own weights without an adapter; undefined if the signal stopped it. */
export async function stepLikelihoods(
  decoder: Decoder,
  sequences: Dataset<VerdictSequence>,
  { microBatchTokens, signal, numbers }: LikelihoodOptions,
): Promise<StepLikelihoods | undefined> {
  const hasDigit = numbers && digitTokens(numbers);
  const floor = numbers ? NUMBER_FLOOR : FLOOR;
  const length = (i: number) => sequences.get(i).solution.trunk.ids.length;
  const groups = groupBySize(indices(sequences), length, microBatchTokens);
  const ofGroup = async (group: readonly number[]) => {
    const items = group.map((i) => readSteps(sequences.get(i), hasDigit));
    const logs = await logsOf(decoder, items, numbers !== undefined);
    let at = 0;
    return items.map(({ spans }) => {
      const bySteps = new Map<number, StepLikelihood>();
      let before = 0;
      for (const { step, tokens } of spans) {
        const own = Math.max(floor, Math.min(0, ...logs.subarray(at, at + tokens)));
        const upTo = Math.min(before, own);
        at += tokens;
        bySteps.set(step, { least: numbers ? own : upTo, before });
        before = upTo;
      }
      return bySteps;
    });
  };
  // Groups are consecutive.
  return (await overGroups(decoder.device, groups, ofGroup, { signal }))?.flat();
}

/** By row: log-probabilities, or how far they are from what was expected. */
async function logsOf(
  decoder: Decoder,
  items: readonly ReadSteps[],
  beyondExpected: boolean,
): Promise<Float32Array> {
  if (items.every(({ rows }) => rows.length === 0)) return new Float32Array();
  const scores = decoder.device.scope(() => scoreRows(decoder, {}, items), 'likelihood');
  try {
    const logprobs = await scores.logprobs.readFloats();
    if (!beyondExpected) return logprobs;
    const entropy = await scores.entropy.readFloats();
    return logprobs.map((log, i) => log + (entropy[i] as number));
  } finally {
    for (const tensor of Object.values(scores)) tensor.dispose();
  }
}

type ReadSteps = ReturnType<typeof readSteps>;

/** The trunk by itself, as far as it is judged, and the rows that predict the tokens of its steps. */
function readSteps(
  { solution: { trunk, verdicts }, rowId }: VerdictSequence,
  hasDigit?: (id: number) => boolean,
) {
  const length = Math.max(0, ...verdicts.map(({ at }) => at));
  const ids = Array.from(trunk.ids.slice(0, length));
  const rows: AnswerRow[] = [];
  const spans = trunk.steps
    .filter(({ end }) => end <= length)
    .map(({ step, start, end }) => {
      const first = Math.max(1, start);
      const from = rows.length;
      for (let t = first; t < end; t++)
        if (!hasDigit || tellsNumber(ids, t, hasDigit)) rows.push({ row: t - 1, token: ids[t] as number });
      return { step, tokens: rows.length - from };
    });
  const positions = ids.map((_, i) => i);
  return { sequence: { ids, positions, branch: undefined, rowId }, rows, spans };
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
