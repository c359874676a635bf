/** `method: ppo`: policy optimisation on solutions that the policy samples itself. */

import { concurrencyOf, rowsOf } from '../../config/sampling.js';
import { writeSolvedProblems } from '../../eval/solving/dump.js';
import { flatMetrics, type SolvedReport } from '../../eval/solving/run-report.js';
import { typedCommand } from '../../native/typed-command.js';
import { askedOnce } from '../../remote/asked-once.js';
import { remoteSource } from '../../remote/remote-source.js';
import { processesOf } from '../../runtime/processes.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import { segmentTokenizer } from '../../tokenizer/segments.js';
import type { Evaluation, Method } from '../../train/method.js';
import { type AskedProblems, askedProblems } from '../../train/solutions/asked.js';
import { accuracyOf, judgedByOracle, solvedByGroup, solveHeldOut } from '../../train/solutions/held-out.js';
import { remoteSampler } from '../../train/solutions/remote-sampler.js';
import { type LocalSamplerOptions, localSampler } from '../../train/solutions/sampler.js';
import type { SolutionSampler } from '../../train/solutions/solution-sampler.js';
import { hasCritic } from './algorithms.js';
import { BASE, baseProblems, baseSolutions, baseStage } from './base.js';
import type { PpoRunConfig } from './config.js';
import { plannedRewardModels } from './reward-memory.js';
import { rewardSources } from './reward-sources.js';
import { createPpoRoles, ppoRoles } from './roles.js';
import type { PpoRun, RewardedRoles } from './run.js';
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
      baseStage(open, sampling),
      solutionStage(open, {
        sampler: rolloutSampler(open, sampling),
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
  async evaluate(open, { tokens }, signal): Promise<Evaluation | undefined> {
    const { test, validation } = open.data.parts;
    const solved = await solve(open, 'test', signal);
    const base = await baseSolutions(open);
    const chosen = validation.problems.length > 0 && (await solve(open, 'validation', signal));
    if (!solved) return undefined;
    if (signal.aborted) return undefined;
    const after = await judgedByOracle(test.problems, solved);
    const before = await judgedByOracle(test.problems, base.test);
    const groups = solvedByGroup(test.problems, after);
    await writeSolvedProblems(
      open.run.path,
      test.problems.map(({ problem, answer }, i) => ({ problem, answer, samples: after[i] ?? [] })),
    );
    const report: SolvedReport = {
      method: open.config.method,
      unit: 'problems',
      data: { problems: test.problems.length, trained_tokens: tokens },
      metrics: flatMetrics(groups),
      ...(chosen ? { metrics_validation: flatMetrics(solvedByGroup(validation.problems, chosen)) } : {}),
      models: { before: solvedByGroup(test.problems, before), after: groups },
    };
    return {
      metrics: { accuracy: accuracyOf(after), accuracy_before: accuracyOf(before) },
      solved: report,
    };
  },
};

function samplingOf({ config, data, roles, tokenizer, cacheBytes }: PpoRun): LocalSamplerOptions {
  const { rollout, run } = config;
  return {
    decoder: roles.decoder,
    role: roles.policy,
    tokenizer,
    sampling: { ...rollout, stop: [...data.prompt.stop, ...rollout.stop] },
    seed: run.seed,
    cacheBytes,
    environment:
      rollout.environment === undefined
        ? undefined
        : {
            name: rollout.environment,
            maxTurns: rollout.max_turns,
            longest: config.data.max_length,
            timeout: rollout.turn_timeout,
          },
  };
}

/** The sampler of rollouts: this process, or the configured server. */
function rolloutSampler(
  { config: { rollout }, roles, run }: PpoRun,
  sampling: LocalSamplerOptions,
): SolutionSampler {
  const { server } = rollout;
  const { adapter } = roles.policy;
  if (!server) return localSampler(sampling);
  const { url, kind, model, adapters, weights, key_env: keyEnv, attempts, timeout } = server;
  const seenAs = server.adapters_seen_as;
  const source = remoteSource({
    url,
    server: kind,
    model,
    keyEnv,
    attempts,
    idleSeconds: timeout,
    concurrency: concurrencyOf(rollout.max_rows),
    ...(adapters && { adapters: { directory: adapters, ...(seenAs ? { seenAs } : {}) } }),
    ...(weights && { weights: { directory: weights, ...(seenAs ? { seenAs } : {}) } }),
  });
  return remoteSampler({
    ...sampling,
    source: askedOnce(source, processesOf(roles.decoder.device)?.cluster),
    adapter,
    eosTokenIds: endTokens(roles.decoder.config, sampling.tokenizer),
    goOn: `when the server is there again, go on with: ${typedCommand(`run --resume ${run.path}`)}`,
  });
}

function solve(open: PpoRun, part: 'validation' | 'test', signal: AbortSignal) {
  return solveHeldOut(open.data.parts[part], {
    ...samplingOf(open),
    n: open.config.rollout.num_generations_eval,
    signal,
  });
}
