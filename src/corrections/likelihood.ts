/**
 * Whether the model would write the wrong steps itself. Sampled at a high temperature they may be steps that it finds less
 * likely than the right one; from such a model learns to correct errors that it does not make.
 */
import type { Model } from '../api/model.js';
import type { StepSampler } from './sampler.js';
import type { Tally } from './tally.js';
import type { WrongStep } from './teacher.js';

/** The model that the steps were sampled from, at temperature 1. */
export type SampledModel = Pick<Model, 'score' | 'decoder'>;

const COMPARED = 'wrong steps compared';
const UNLIKELY = 'wrong steps less likely than the right one';

/** Counts wrong steps, and those of them that the model finds less likely, to their separator, than the right step. */
export async function tallyLikelihood(
  wrong: readonly WrongStep[],
  { sampler, scorer }: { readonly sampler: StepSampler; readonly scorer?: SampledModel },
  tally: Tally,
): Promise<void> {
  if (!scorer) return;
  const pairs = wrong
    .map(({ problem, before, wrong, right }) => ({
      from: sampler.ids({ problem, steps: before }).length,
      pair: [wrong, right].map((step) => sampler.ids({ problem, steps: [...before, step] })),
    }))
    .filter(({ pair }) => pair.every(({ length }) => length <= scorer.decoder.config.maxPositions));
  const scores = await scorer.score(pairs.flatMap(({ pair }) => pair));
  const sumOf = (i: number, from: number) =>
    scores[i]?.logprobs.subarray(from - 1).reduce((sum, logprob) => sum + logprob, 0) ?? 0;
  tally.add(COMPARED, pairs.length);
  tally.add(UNLIKELY, pairs.filter(({ from }, i) => sumOf(2 * i, from) < sumOf(2 * i + 1, from)).length);
}

/** Advice for data in which most wrong steps are unlikely for the model; undefined otherwise. */
export function likelihoodWarning(tally: Tally): string | undefined {
  const compared = tally.get(COMPARED);
  const unlikely = tally.get(UNLIKELY);
  if (2 * unlikely <= compared) return undefined;
  return (
    `the model finds ${unlikely} of ${compared} wrong steps (${Math.round((100 * unlikely) / compared)} %) less likely than the right step in their place, ` +
    'so that it learns to correct errors that it hardly makes itself: lower corrections.sample.temperature and raise ' +
    'corrections.sample.n, or take harder problems'
  );
}
