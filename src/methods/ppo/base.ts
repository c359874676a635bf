/**
 * The first stage: solutions of the model before training. The table at the end compares them with those of the trained
 * one, and rewards may be normalised by their moments. Runs that learn from other rewards may share the stage.
 */

import { objectRows } from '../../data/rows.js';
import type { GradedSample } from '../../eval/solving/sample.js';
import { rewardMoments, type WeightedSource } from '../../rewards/mixture.js';
import type { RewardedSolution } from '../../rewards/reward.js';
import { groupBySize } from '../../sequences/batching.js';
import { solveHeldOut } from '../../train/solutions/held-out.js';
import type { LocalSolutionsOptions } from '../../train/solutions/local-solutions.js';
import { mixedBatches } from '../../train/solutions/mix.js';
import type { RunProblem } from '../../train/solutions/problems.js';
import type { MakingStage, SaveSettings } from '../../train/stage.js';
import type { RewardSection } from './config.js';
import { rewardedSolution } from './rewards.js';
import type { PpoRun, SolvingRun } from './run.js';

/** Name of the stage and of its artefact. */
export const BASE = 'base';

type BasePart = 'test' | 'validation' | 'train';

/** A row of the artefact; `problem` is an index of the part. */
type BaseRow = GradedSample & { readonly part: BasePart };

export interface BaseSolutions {
  /** Solutions by problem, as an evaluation has them. */
  readonly test: readonly (readonly GradedSample[])[];
  readonly validation: readonly (readonly GradedSample[])[];
  /** Solutions of some training problems, as a rollout has them. */
  readonly train: readonly GradedSample[];
}

/** Problems of one step. */
const CHUNK = 64;

/** Number of training problems for `whiten: base`; 0 where no source asks for it. */
export function baseProblems({ base_problems, ...reward }: RewardSection): number {
  const asks = Object.values(reward).some(
    (source) =>
      typeof source === 'object' && 'whiten' in source && source.weight !== 0 && source.whiten === 'base',
  );
  return asks ? base_problems : 0;
}

export interface BaseStageOptions {
  readonly settings: SaveSettings;
  /** Training problems of which it draws solutions as rollouts do. */
  readonly rewarded: readonly number[];
}

export function baseStage(
  { config, data }: SolvingRun,
  sampling: LocalSolutionsOptions,
  { settings, rewarded }: BaseStageOptions,
): MakingStage {
  const chunks = [
    ...inChunks('test', [...data.parts.test.problems.keys()]),
    ...inChunks('validation', [...data.parts.validation.problems.keys()]),
    ...inChunks('train', rewarded),
  ];
  return {
    name: BASE,
    artefact: BASE,
    steps: Math.max(1, chunks.length),
    settings,
    batching: { 'base.chunks': chunks.length },
    open: () => ({
      begin: async () => {},
      async step(index, signal) {
        const { part, items } = chunks[index] ?? { part: 'test', items: [] };
        const { problems, prompts } = data.parts[part];
        const asked = {
          problems: items.map((item) => problems[item] as (typeof problems)[number]),
          prompts: items.map((item) => prompts[item]),
        };
        const how =
          part === 'train'
            ? { n: config.rollout.num_generations, temperature: config.rollout.temperature }
            : { n: config.rollout.num_generations_eval };
        const solved = await solveHeldOut(asked, { ...sampling, ...how, signal });
        if (!solved) return undefined;
        const rows = solved.flatMap((samples, i) =>
          samples.map((sample): BaseRow => ({ ...sample, part, problem: items[i] as number })),
        );
        const right = rows.filter((row) => row.right).length;
        return {
          rows: rows as (BaseRow & Record<string, unknown>)[],
          // A share, as `right` of every other stage.
          metrics: { solutions: rows.length, ...(rows.length > 0 ? { right: right / rows.length } : {}) },
          shown: { right, solutions: rows.length },
          tokens: rows.reduce((sum, { tokens }) => sum + tokens, 0),
        };
      },
      dispose() {},
    }),
  };
}

/** The rows that the stage made. */
export async function baseSolutions({ run, data }: Pick<SolvingRun, 'run' | 'data'>): Promise<BaseSolutions> {
  const byProblem = (part: BasePart): GradedSample[][] => data.parts[part].problems.map(() => []);
  const found = { test: byProblem('test'), validation: byProblem('validation'), train: byProblem('train') };
  for await (const { row } of objectRows(run.artefact(BASE).path)) {
    // This package wrote it.
    const { part, ...sample } = row as unknown as BaseRow;
    found[part][sample.problem]?.push(sample);
  }
  return { ...found, train: found.train.flat() };
}

/** The sources of the run; those that `whiten: base` is asked of know its moments when they are first needed. */
export function standardised(
  { roles: { sources }, data, config }: PpoRun,
  base: () => Promise<BaseSolutions>,
): (signal: AbortSignal) => Promise<readonly WeightedSource[] | undefined> {
  let known: readonly WeightedSource[] | undefined = sources.some(({ byBase }) => byBase)
    ? undefined
    : sources;
  const bySteps = config.reward.placement === 'step';
  return async (signal) => {
    if (known) return known;
    const { problems } = data.parts.train;
    const solutions = (await base()).train.map(
      ({ problem, text, tokens, finish_reason, episode: turns }): RewardedSolution =>
        rewardedSolution(problems[problem] as RunProblem, {
          ...{ text, tokens, turns },
          truncated: finish_reason === 'length',
        }),
    );
    const found: WeightedSource[] = [];
    for (const source of sources) {
      const whiten = source.byBase
        ? await rewardMoments(source, solutions, { bySteps, signal })
        : source.whiten;
      if (whiten === undefined) return undefined;
      found.push({ ...source, whiten });
    }
    known = found;
    return known;
  };
}

/** Drawn as rollouts draw theirs. */
export function rewardedProblems({ config: { reward, rollout, run }, data }: PpoRun): readonly number[] {
  const { problems, prompts } = data.parts.train;
  const count = baseProblems(reward);
  if (count === 0) return [];
  const groups = prompts.map((prompt, i) => prompt && { group: problems[i]?.group });
  const options = { batchSize: count, epochs: 1, maxBatches: 1, seed: run.seed, weights: rollout.mix };
  return [...new Set(mixedBatches(groups, options).batches.get(0))];
}

const inChunks = (part: BasePart, items: readonly number[]) =>
  groupBySize(items, () => 1, CHUNK).map((own) => ({ part, items: own }));
