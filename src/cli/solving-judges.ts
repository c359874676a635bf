// Reward models and judges of `steptrain eval solve`: a run, a model, a file of scores, or the oracle of generated problems.
import { type Aggregation, isOfProbabilities } from '../eval/solving/aggregation.js';
import type { SolutionScorer, StepJudge } from '../eval/solving/judging.js';
import { oracleJudge, oracleScorer } from '../eval/solving/oracle.js';
import { scoreFile } from '../eval/solving/score-file.js';
import { stepScores } from '../eval/solving/step-scores.js';
import type { StepScorer } from '../eval/step-scorer.js';
import { openRewardModel, type RewardModel } from '../methods/reward-models.js';
import type { RunScorers } from '../methods/run-scorers.js';
import type { Device } from '../runtime/device.js';
import { UsageError } from './error.js';

export interface JudgeArguments {
  readonly 'reward-run'?: string;
  readonly 'reward-scorer'?: string;
  readonly 'reward-model'?: string;
  readonly scores?: string;
  readonly 'score-column': string;
  readonly 'reward-oracle'?: boolean;
  readonly 'judge-run'?: string;
  readonly 'judge-oracle'?: boolean;
  readonly aggregate: Aggregation;
}

export interface SolvingJudges {
  readonly scorer?: SolutionScorer;
  readonly judge?: StepJudge;
  dispose(): void;
}

/** Loads what the options name, onto the device of the model that solves. */
export async function openJudges(device: Device, args: JudgeArguments): Promise<SolvingJudges> {
  const opened: { dispose(): void }[] = [];
  const models = new Map<string, RewardModel>();
  /** One model serves as reward model and as judge. */
  const openModel = async (name: string) => {
    const known = models.get(name);
    if (known) return known;
    const model = await openRewardModel(device, name);
    opened.push(model);
    models.set(name, model);
    return model;
  };
  const dispose = () => {
    for (const each of opened.reverse()) each.dispose();
  };
  try {
    const judge = await openJudge(args, openModel);
    const scorer = await openScorer(args, openModel);
    return { ...(judge ? { judge } : {}), ...(scorer ? { scorer } : {}), dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}

type OpenModel = (name: string) => Promise<RewardModel>;

async function openJudge(args: JudgeArguments, openModel: OpenModel): Promise<StepJudge | undefined> {
  if (args['judge-oracle']) return oracleJudge;
  const run = args['judge-run'];
  if (run === undefined) return undefined;
  const { scorers, threshold, outcomesAlone, outcomes } = await openModel(run);
  if (outcomesAlone || outcomes)
    throw new UsageError(
      `${run} holds a reward model of outcomes, which judges no steps; name one of reward.type prm or joint`,
    );
  return stepScores(named(scorers, undefined, run), {
    name: run,
    ...(threshold === undefined ? {} : { threshold }),
  });
}

async function openScorer(
  {
    scores,
    'score-column': column,
    'reward-oracle': oracle,
    'reward-scorer': scorer,
    'reward-model': model,
    'reward-run': name = model,
    aggregate,
  }: JudgeArguments,
  openModel: OpenModel,
): Promise<SolutionScorer | undefined> {
  if (oracle) return oracleScorer;
  if (scores !== undefined) return scoreFile(scores, column);
  if (name === undefined && scorer !== undefined)
    throw new UsageError('--reward-scorer chooses one of a run: name it with --reward-model');
  if (name === undefined) return undefined;
  const { outcomes, scorers } = await openModel(name);
  return (
    outcomes ??
    stepScores(multiplied(named(scorers, scorer, name), name, aggregate), {
      name: scorer === undefined ? name : `${name} (${scorer})`,
    })
  );
}

/** @throws UsageError for a product of scores that are no probabilities */
function multiplied(scorer: StepScorer, run: string, how: Aggregation): StepScorer {
  if (scorer.scale === 'probability' || !isOfProbabilities(how)) return scorer;
  throw new UsageError(
    `${run} scores steps without bounds, and --aggregate ${how} multiplies probabilities; use min, mean, last, max or soft_min`,
  );
}

/** The scorer of that name, or the run's first. */
function named(scorers: RunScorers['scorers'], name: string | undefined, run: string) {
  const all = Object.keys(scorers);
  const scorer = scorers[name ?? (all[0] as string)];
  if (scorer) return scorer;
  throw new UsageError(`${run} has no scorer ${name}; --reward-scorer may be ${all.join(' or ')}`);
}
