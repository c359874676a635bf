/** The policy stage on solutions: the problems of each rollout batch, and the plug-ins of the loop. */

import { ConfigError } from '../../config/error.js';
import { warn } from '../../terminal/log.js';
import { AdamW, adamSettings } from '../../train/adamw.js';
import { corrected, importanceMetrics } from '../../train/policy/importance.js';
import { fewMiniBatches, policyStage } from '../../train/policy/stage.js';
import { mixedBatches, mixWarnings } from '../../train/solutions/mix.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import type { SolutionSource } from '../../train/solutions/solution-source.js';
import type { OpenTraining, TrainingStage } from '../../train/stage.js';
import { solutionAdvantage } from './advantage.js';
import { algorithmOf, hasCritic } from './algorithms.js';
import { type BaseSolutions, standardised } from './base.js';
import { equalGroupsWatch } from './equal-groups.js';
import { ImplicitRewards } from './implicit.js';
import { solutionObjective } from './objective.js';
import { solutionRewards } from './rewards.js';
import { type SolutionGroup, solutionRollouts } from './rollout.js';
import type { PpoRun } from './run.js';
import { solutionMetrics, solutionSamples } from './samples.js';
import { scoresInUpdate, settingWarnings, settled } from './settings.js';

export interface SolutionStageOptions {
  readonly source: SolutionSource;
  /** The solutions that the stage before made. */
  readonly base: () => Promise<BaseSolutions>;
  readonly validate: OpenTraining['validate'];
}

export function solutionStage(open: PpoRun, { source, base, validate }: SolutionStageOptions): TrainingStage {
  const { config, data, roles, tokenizer } = open;
  const { rollout, reward, run } = config;
  const settings = settled(config);
  for (const warning of settingWarnings(config)) warn(warning);
  const { problems, prompts } = data.parts.train;
  const sources = standardised(open, base);
  const microBatchTokens = open.microBatchTokens('ppo');
  const promptOf = (item: number) => prompts[item] as SolutionPrompt;
  const problemOf = (item: number) => problems[item] as (typeof problems)[number];
  const common = { roles, settings, promptOf, temperature: rollout.temperature, microBatchTokens };
  const iterations = iterationsOf(open);
  const few = fewMiniBatches({ settings, iterations }, { key: 'ppo.num_mini_batches', noun: 'problems' });
  if (few !== undefined) warn(few);
  const equalGroups = equalGroupsWatch(settings, iterations.batches.length);
  const stage = policyStage<SolutionGroup>({
    name: 'ppo',
    settings,
    iterations,
    batching: { 'ppo.problems': problems.length, 'ppo.num_generations': rollout.num_generations },
    trains: roles.policyParameters,
    optimizer: () => new AdamW(roles.policyTrained, adamSettings(settings)),
    parts: (steps, kl) => ({
      rollouts: solutionRollouts({
        ...{ ...common, source, n: rollout.num_generations },
        scoredLater: scoresInUpdate(settings),
      }),
      rewards: solutionRewards({
        sources,
        problemOf,
        tokenizer,
        implicit:
          roles.implicit &&
          new ImplicitRewards({
            role: roles.implicit,
            reward: reward.implicit,
            ...{ settings, promptOf, problemOf, microBatchTokens },
            maxSkipped: run.max_skipped_steps,
          }),
        seed: run.seed,
        settings: {
          ...reward,
          ...settings,
          paysSomeTurns:
            algorithmOf(settings).advantage !== 'turns' &&
            reward.steps.weight === 0 &&
            reward.function.weight === 0,
        },
      }),
      advantage: corrected(solutionAdvantage(roles.decoder.device, settings), settings),
      objective: solutionObjective({ ...common, kl, longest: rollout.max_new_tokens, steps }),
    }),
    seed: run.seed,
    maxStaleness: rollout.server?.max_staleness ?? 0,
    maxDifference: rollout.server?.max_difference,
    best: 'accuracy',
    begin: async () => {},
    validate,
    // One that was cut off and is not learned from was sampled all the same.
    weightOf: () => 1,
    describe: (groups) => ({ ...solutionMetrics(groups), ...importanceMetrics(groups, settings) }),
    onRollout: (groups, iteration) => {
      for (const sample of solutionSamples(groups, problems, iteration)) open.run.samples.append(sample);
      const warning = equalGroups(groups);
      if (warning !== undefined) warn(warning);
    },
  });
  if (hasCritic(config.ppo) && stage.steps <= settings.critic_warmup)
    throw new ConfigError(
      `ppo.critic_warmup ${settings.critic_warmup}: the critic learns alone for so many optimizer steps, and the run has ${stage.steps}, ` +
        'so that the policy would never learn; set it lower (0 switches it off), or ppo.max_iterations higher',
    );
  return stage;
}

function iterationsOf({ config: { ppo, rollout, run }, data }: PpoRun): ReturnType<typeof mixedBatches> {
  const { prompts, problems } = data.parts.train;
  const groups = prompts.map((prompt, i) => prompt && { group: problems[i]?.group });
  for (const warning of mixWarnings(groups, { batchSize: ppo.rollout_batch, weights: rollout.mix }))
    warn(warning);
  return mixedBatches(groups, {
    batchSize: ppo.rollout_batch,
    epochs: ppo.num_train_epochs,
    maxBatches: ppo.max_iterations > 0 ? ppo.max_iterations : undefined,
    seed: run.seed,
    weights: rollout.mix,
  });
}
