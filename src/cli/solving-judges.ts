// Reward models and judges of `steptrain eval solve`: a run, a model, or a file of scores.
import { join } from 'node:path';
import { loadModel } from '../api/model.js';
import type { SolutionScorer, StepJudge } from '../eval/solving/judging.js';
import { rewardModel } from '../eval/solving/reward-model.js';
import { scoreFile } from '../eval/solving/score-file.js';
import { verdictModel } from '../eval/solving/verdict-model.js';
import { parseRunConfig } from '../methods/config.js';
import { baseDirectory } from '../models/base.js';
import { readRunConfig } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { resolveModel } from '../run/paths.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import { trainedModel } from '../run/trained-model.js';
import type { Device } from '../runtime/device.js';

export interface JudgeArguments {
  readonly 'reward-run'?: string;
  readonly 'reward-model'?: string;
  readonly scores?: string;
  readonly 'score-column': string;
  readonly 'judge-run'?: string;
}

export interface SolvingJudges {
  readonly scorer?: SolutionScorer;
  readonly judge?: StepJudge;
  dispose(): void;
}

/** Loads what the options name, onto the device of the model that solves. */
export async function openJudges(device: Device, args: JudgeArguments): Promise<SolvingJudges> {
  const opened: { dispose(): void }[] = [];
  const run = async (directory: string) => {
    const { model, judge } = await verdictRun(device, directory);
    opened.push(model);
    return judge;
  };
  const dispose = () => {
    for (const model of opened) model.dispose();
  };
  try {
    const judge = args['judge-run'] === undefined ? undefined : await run(args['judge-run']);
    const scorer = await openScorer(device, args, { run, judge, opened });
    return { ...(judge ? { judge } : {}), ...(scorer ? { scorer } : {}), dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}

async function openScorer(
  device: Device,
  { scores, 'score-column': column, 'reward-run': rewardRun, 'reward-model': name, ...args }: JudgeArguments,
  {
    run,
    judge,
    opened,
  }: {
    readonly run: (directory: string) => Promise<SolutionScorer & StepJudge>;
    readonly judge: (SolutionScorer & StepJudge) | undefined;
    readonly opened: { dispose(): void }[];
  },
): Promise<SolutionScorer | undefined> {
  if (scores !== undefined) return scoreFile(scores, column);
  // One model serves as both.
  if (rewardRun !== undefined) return rewardRun === args['judge-run'] ? judge : run(rewardRun);
  if (name === undefined) return undefined;
  const found = await resolveModel({ base: name, tokenizer: 'base' }, () => '--reward-model');
  const model = await loadModel(device, baseDirectory(found.base));
  opened.push(model);
  return rewardModel(model, { name, tokenizer: await configuredTokenizer(found) });
}

/** The model of a run that learned verdicts on steps, with the prompt that it learned them with. */
async function verdictRun(device: Device, run: string) {
  const { config } = parseRunConfig(await readRunConfig(run), { name: join(run, 'config.yaml') });
  if (!('prompt' in config))
    throw new RunError(`${run} is a run of method ${config.method}, whose model judges no steps`);
  const { model: directory, adapter } = trainedModel(run, config.model.base);
  const model = await loadModel(device, directory, { adapter, dtype: config.model.dtype });
  const judge = verdictModel(model, {
    name: run,
    tokenizer: await configuredTokenizer(config.model),
    prompt: config.prompt,
    maxLength: config.data.max_length,
    threshold: config.eval.threshold,
  });
  return { model, judge };
}
