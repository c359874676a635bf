/** Mixes rewards of several sources into one, by solution and by step. */
import { square } from '../native/elementary.js';
import { invalid, StepTrainError } from '../native/errors.js';
import { grouped } from '../native/grouped.js';
import { PhiloxStream, shuffled } from '../random/philox.js';
import type { RewardedSolution, SolutionReward, SourceReward } from './reward.js';

/** The weight of a source and its transformations. */
export interface SourceWeight {
  readonly weight: number;
  /** Multiplies the source's rewards before they are clipped. */
  readonly scale: number;
  /** Bound ± on a reward; 0 for no clipping. */
  readonly clip: number;
  /**
   * Whether to normalise to mean 0 and standard deviation 1, over the solutions of a rollout batch or by the given
   * moments; after scale and clip.
   */
  readonly whiten: boolean | RewardMoments;
  /** A control: dealt out anew at random among the solutions of a rollout batch, or only among those of each problem. */
  readonly shuffle?: boolean | 'problem';
}

/** Moments of a source's rewards after scale and clip. */
export interface RewardMoments {
  readonly mean: number;
  readonly deviation: number;
}

export interface WeightedSource extends SourceWeight {
  readonly reward: SolutionReward;
}

/** The random streams of shuffled rewards. */
const SHUFFLE = 0x5b0f;

/** The rewards of one source. */
export interface RewardPart {
  /** Name of the source. */
  readonly weight: number;
  readonly value: number;
}

/** The reward of a solution. */
export interface MixedReward {
  /**
   * Reward of the whole solution; with `bySteps`, that of the sources without rewards by steps, and absent where there
   * is none.
   */
  readonly value?: number;
  /** `value` without the sources that reward length or form, where there are such; then without `steps`. */
  readonly outcome?: number;
  /** Reward of each step, where `bySteps` is on and a source judges steps. */
  readonly steps?: readonly number[];
  /** The share of `value` of each source that rewards the whole: its number, normalised, times its weight. */
  readonly parts: readonly RewardPart[];
  /** Value of each source before its weight, for logs. */
  readonly terms: Readonly<Record<string, number>>;
}

export interface MixtureOptions {
  /** The rewards of steps stay apart. Default false. */
  readonly bySteps?: boolean;
  readonly signal?: AbortSignal | undefined;
  /** Seed of shuffled rewards, together with the number of the rollout batch. Default 0. */
  readonly seed?: number;
  readonly iteration?: number;
}

/**
 * The weighted sum of all sources. With `bySteps`, the rewards of steps stay apart instead of the value that the source
 * makes of them. Undefined if the signal stopped it.
 *
 * @throws StepTrainError for a reward that is not a finite number, naming the source and the solution
 */
export async function mixedRewards(
  sources: readonly WeightedSource[],
  solutions: readonly RewardedSolution[],
  { bySteps = false, signal, seed = 0, iteration = 0 }: MixtureOptions = {},
): Promise<MixedReward[] | undefined> {
  const mixed = solutions.map(() => ({
    value: undefined as number | undefined,
    outcome: 0,
    steps: undefined as number[] | undefined,
    parts: [] as RewardPart[],
    terms: {} as Record<string, number>,
  }));
  for (const [at, source] of sources.entries()) {
    const { reward, weight } = source;
    const given = await reward.score(solutions, signal);
    if (!given || signal?.aborted) return undefined;
    refuseOdd(reward.name, given, solutions);
    const own = normalised(given, source, bySteps);
    const draw = new PhiloxStream(seed, SHUFFLE, iteration * sources.length + at);
    const scaled = source.shuffle ? dealtOut(own, sharing(solutions, source.shuffle), draw) : own;
    mixed.forEach((own, i) => {
      const { value, steps } = scaled[i] as SourceReward;
      own.terms[reward.name] = (given[i] as SourceReward).value;
      if (!steps) {
        own.value = (own.value ?? 0) + weight * value;
        if (!reward.isShape) own.outcome += weight * value;
        own.parts.push({ weight, value });
      } else {
        own.steps ??= steps.map(() => 0);
        for (const [h, step] of steps.entries()) own.steps[h] = (own.steps[h] ?? 0) + weight * step;
      }
    });
  }
  const isShaped = sources.some(({ reward }) => reward.isShape);
  return mixed.map(({ value, outcome, steps, parts, terms }) => ({
    ...{ parts, terms },
    ...(isShaped && !steps ? { outcome } : {}),
    ...(value === undefined ? {} : { value }),
    ...(steps ? { steps } : {}),
  }));
}

/**
 * The moments of a source's rewards for `solutions`, such as those of the model before training; with them its rewards
 * keep one scale for a whole run. Undefined if the signal stopped it.
 */
export async function rewardMoments(
  source: WeightedSource,
  solutions: readonly RewardedSolution[],
  { bySteps = false, signal }: Pick<MixtureOptions, 'bySteps' | 'signal'> = {},
): Promise<RewardMoments | undefined> {
  const given = await source.reward.score(solutions, signal);
  if (!given || signal?.aborted) return undefined;
  refuseOdd(source.reward.name, given, solutions);
  return moments(bounded(given, source, bySteps));
}

/** Scaled and clipped; the rewards of steps only where they count. */
function bounded(given: readonly SourceReward[], { scale, clip }: SourceWeight, bySteps: boolean) {
  const bound = (value: number) => (clip > 0 ? Math.max(-clip, Math.min(clip, value)) : value);
  return given.map(({ value, steps }) => ({
    value: bound(scale * value),
    // A solution without steps has its own reward alone.
    steps: bySteps && steps?.length ? steps.map((step) => bound(scale * step)) : undefined,
  }));
}

/** Scaled, clipped and whitened; the numbers of steps among each other where they count. */
function normalised(given: readonly SourceReward[], source: SourceWeight, bySteps: boolean): SourceReward[] {
  const { whiten } = source;
  const own = bounded(given, source, bySteps);
  const { mean, deviation } =
    whiten === true ? moments(own) : whiten === false ? { mean: 0, deviation: 1 } : whiten;
  const white = (value: number) => (value - mean) / deviation;
  return own.map(({ value, steps }) => ({
    value: white(value),
    ...(steps ? { steps: steps.map(white) } : {}),
  }));
}

/** The places of the solutions that exchange their rewards. */
function sharing(solutions: readonly RewardedSolution[], shuffle: true | 'problem'): number[][] {
  const places = solutions.map((_, i) => i);
  if (shuffle === true) return [places];
  return [...grouped(places, (i) => solutions[i]?.problem.problem).values()];
}

/** The same rewards in another order within each group, so that a solution's own reward is unrelated to it. */
function dealtOut(
  given: readonly SourceReward[],
  groups: readonly (readonly number[])[],
  draw: PhiloxStream,
): SourceReward[] {
  const dealt = [...given];
  for (const group of groups) {
    const own = group.map((i) => given[i] as SourceReward);
    const values = shuffled(
      draw,
      own.flatMap(({ value, steps }) => (steps ? [] : [value])),
    );
    const steps = shuffled(
      draw,
      own.flatMap(({ steps = [] }) => steps),
    );
    for (const [n, i] of group.entries()) {
      const { value, steps: { length } = { length: undefined } } = own[n] as SourceReward;
      dealt[i] =
        length === undefined
          ? { value: values.shift() as number }
          : { value, steps: steps.splice(0, length) };
    }
  }
  return dealt;
}

function moments(given: ReturnType<typeof bounded>): RewardMoments {
  const values = given.flatMap(({ value, steps }) => steps ?? [value]);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + square(value - mean), 0);
  const deviation = values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0;
  return { mean, deviation: deviation > 1e-8 ? deviation : 1 };
}

function refuseOdd(
  name: string,
  given: readonly SourceReward[],
  solutions: readonly RewardedSolution[],
): void {
  if (given.length !== solutions.length)
    throw invalid(
      `reward ${name}: expected ${solutions.length} rewards, one for each solution, found ${given.length}`,
    );
  given.forEach(({ value, steps = [] }, i) => {
    const odd = [value, ...steps].find((reward) => typeof reward !== 'number' || !Number.isFinite(reward));
    if (odd === undefined) return;
    const { problem, text } = solutions[i] as RewardedSolution;
    throw new StepTrainError(
      'E_NONFINITE',
      `reward ${name}: expected finite numbers, found ${odd} for the solution ${JSON.stringify(text.slice(0, 80))} of ` +
        JSON.stringify(problem.problem.slice(0, 80)),
    );
  });
}
