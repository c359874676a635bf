/** `method: ppo`: policy optimisation on solutions that the policy samples itself. */

import { rowsOf } from '../../config/sampling.js';
import { readLog } from '../../run/log-file.js';
import { warn } from '../../terminal/log.js';
import { segmentTokenizer } from '../../tokenizer/segments.js';
import type { Method } from '../../train/method.js';
import { type AskedProblems, askedProblems } from '../../train/solutions/asked.js';
import { accuracyOf } from '../../train/solutions/held-out.js';
import { hasCritic } from './algorithms.js';
import { BASE, baseProblems, baseSolutions, baseStage, rewardedProblems } from './base.js';
import type { PpoRunConfig } from './config.js';
import { overoptimized } from './overoptimized.js';
import { plannedRewardModels } from './reward-memory.js';
import { rewardSources } from './reward-sources.js';
import { createPpoRoles, ppoRoles } from './roles.js';
import type { RewardedRoles } from './run.js';
import { rolloutSolutions, samplingOf, solve, solvedBeforeAndAfter } from './solving.js';
import { solutionStage } from './stage.js';

export const ppo: Method<PpoRunConfig, AskedProblems, RewardedRoles> = {
  data(config, tokenizer) {
    const { template, max_new_tokens: maxNewTokens, environment } = config.rollout;
    const episodes = environment !== undefined;
    return askedProblems(config, tokenizer, { template, maxNewTokens, episodes });
  },
  preview(_config, tokenizer) {
    const tokenize = segmentTokenizer(tokenizer);
    return ({ problem }) => [
      { title: 'a problem', sequence: tokenize([{ text: problem, role: 'prompt', train: false }]) },
    ];
  },
  memory: (config, device) => [...ppoRoles(config), ...plannedRewardModels(config.reward, device)],
  sampling: ({ data, rollout }) => ({ longest: data.max_length, rows: rowsOf(rollout.max_rows) }),
  async roles(context) {
    const { device, config, tokenizer } = context;
    const { sources, held, dispose: disposeSources } = await rewardSources(context);
    try {
      const roles = await createPpoRoles(device, config, tokenizer);
      return {
        ...roles,
        held: { ...held, ...roles.held },
        sources,
        dispose() {
          roles.dispose();
          disposeSources();
        },
      };
    } catch (error) {
      disposeSources();
      throw error;
    }
  },
  stages(open) {
    const base = () => baseSolutions(open);
    const sampling = samplingOf(open);
    return [
      baseStage(open, sampling, { settings: open.config.ppo, rewarded: rewardedProblems(open) }),
      solutionStage(open, {
        source: rolloutSolutions(open, sampling),
        base,
        validate: async (signal, step) => {
          const solved = step === 0 ? (await base()).validation : await solve(open, 'validation', signal);
          return solved && { accuracy: accuracyOf(solved) };
        },
      }),
    ];
  },
  shared: ({ ppo, reward }) => [
    {
      stage: BASE,
      unread: ['ppo', 'reward'],
      // The contents of the checkpoint depend on these.
      decided: {
        critic: hasCritic(ppo) && ppo.critic,
        implicit: reward.implicit.weight !== 0,
        problems: baseProblems(reward),
      },
    },
  ],
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open, { tokens }, signal) {
    const { data, run } = open;
    const warning = overoptimized(readLog(run.metrics.path), data.parts.validation.problems.length);
    if (warning !== undefined) warn(warning);
    return solvedBeforeAndAfter(open, await baseSolutions(open), tokens, signal);
  },
};
