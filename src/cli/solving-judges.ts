// Reward models and judges of `steptrain eval solve`: a run, a model, a file of scores, or the oracle of generated problems.
import { type Aggregation, isOfProbabilities } from '../eval/solving/aggregation.js';
import type { SolutionScorer, StepJudge } from '../eval/solving/judging.js';
import { oracleJudge, oracleScorer } from '../eval/solving/oracle.js';
import { scoreFile } from '../eval/solving/score-file.js';
import { stepScores } from '../eval/solving/step-scores.js';
import type { StepScorer } from '../eval/step-scorer.js';
import { isRun, openRewardModel } from '../methods/reward-models.js';
import { openRunScorers, type RunScorers } from '../methods/run-scorers.js';
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
  const runs = new Map<string, RunScorers>();
  /** One model serves as reward model and as judge. */
  const ofScorers = async (run: string) => {
    const known = runs.get(run);
    if (known) return known;
    const scorers = await openRunScorers(device, run);
    opened.push(scorers);
    runs.set(run, scorers);
    return scorers;
  };
  const dispose = () => {
    for (const each of opened.reverse()) each.dispose();
  };
  try {
    const judge = await openJudge(args, ofScorers);
    const scorer = await openScorer(device, args, { ofScorers, opened });
    return { ...(judge ? { judge } : {}), ...(scorer ? { scorer } : {}), dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}

type OfScorers = (run: string) => Promise<RunScorers>;

async function openJudge(args: JudgeArguments, ofScorers: OfScorers): Promise<StepJudge | undefined> {
  if (args['judge-oracle']) return oracleJudge;
  const run = args['judge-run'];
  if (run === undefined) return undefined;
  const { scorers, threshold, outcomesAlone } = await ofScorers(run);
  if (outcomesAlone)
    throw new UsageError(
      `${run} holds a reward model of outcomes, which judges no steps; name one of reward.type prm or joint`,
    );
  return stepScores(named(scorers, undefined, run), {
    name: run,
    ...(threshold === undefined ? {} : { threshold }),
  });
}

async function openScorer(
  device: Device,
  {
    scores,
    'score-column': column,
    'reward-oracle': oracle,
    'reward-scorer': scorer,
    'reward-model': name,
    aggregate,
    'reward-run': run = name !== undefined && isRun(name) ? name : undefined,
  }: JudgeArguments,
  { ofScorers, opened }: { readonly ofScorers: OfScorers; readonly opened: { dispose(): void }[] },
): Promise<SolutionScorer | undefined> {
  if (oracle) return oracleScorer;
  if (scores !== undefined) return scoreFile(scores, column);
  if (run !== undefined)
    return stepScores(multiplied(named((await ofScorers(run)).scorers, scorer, run), run, aggregate), {
      name: scorer === undefined ? run : `${run} (${scorer})`,
    });
  if (name === undefined) return undefined;
  const found = await openRewardModel(device, name);
  opened.push(found);
  return (
    found.outcomes ?? stepScores(multiplied(named(found.scorers, scorer, name), name, aggregate), { name })
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
