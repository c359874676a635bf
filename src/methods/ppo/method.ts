/** `method: ppo`: policy optimisation on solutions that the policy samples itself. */

import { writeSolvedProblems } from '../../eval/solving/dump.js';
import { flatMetrics, type SolvedReport } from '../../eval/solving/run-report.js';
import type { WeightedSource } from '../../rewards/mixture.js';
import { segmentTokenizer } from '../../tokenizer/segments.js';
import type { Evaluation, Method, OpenRun } from '../../train/method.js';
import { accuracyOf, solvedByGroup, solveHeldOut } from '../../train/solutions/evaluation.js';
import { type LocalSamplerOptions, localSampler } from '../../train/solutions/sampler.js';
import type { PpoRunConfig } from './config.js';
import { type ProblemData, problemData } from './data.js';
import { plannedRewardModels } from './reward-memory.js';
import { rewardSources } from './reward-sources.js';
import { createPpoRoles, type PlacedRole, type PpoRoles } from './roles.js';
import { hasCritic } from './settings.js';
import { solutionStage } from './stage.js';

export type PpoRun = OpenRun<PpoRunConfig, ProblemData, RewardedRoles>;

/** The roles, and what rewards their solutions. */
export interface RewardedRoles extends PpoRoles {
  readonly sources: readonly WeightedSource[];
}

export const ppo: Method<PpoRunConfig, ProblemData, RewardedRoles> = {
  data: problemData,
  preview(_config, tokenizer) {
    const tokenize = segmentTokenizer(tokenizer);
    return ({ problem }) => [
      { title: 'a problem', sequence: tokenize([{ text: problem, role: 'prompt', train: false }]) },
    ];
  },
  memory({ lora, ppo, reward }) {
    const head = { outputs: 1, bias: true };
    const critic = hasCritic(ppo);
    return [
      { role: 'policy', held: 'trained', ...(critic && ppo.critic === 'trunk' ? { head } : {}) },
      ...(lora === 'none' && ppo.reference === 'base'
        ? [{ role: 'reference', held: 'frozen' } as const]
        : []),
      ...(critic && ppo.critic !== 'trunk'
        ? [{ role: 'critic', held: 'trained', head, whole: ppo.critic === 'model' } as const]
        : []),
      ...plannedRewardModels(reward),
    ];
  },
  sampling: ({ data, rollout }) => ({ longest: data.max_length, rows: rollout.max_rows }),
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
  stages: (open) => [
    solutionStage(open, {
      sampler: localSampler(samplingOf(open)),
      validate: async (signal) => {
        const solved = await solve(open, 'validation', open.roles, signal);
        return solved && { accuracy: accuracyOf(solved) };
      },
    }),
  ],
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open, { tokens }, signal): Promise<Evaluation | undefined> {
    const { test, validation } = open.data.parts;
    const after = await solve(open, 'test', open.roles, signal);
    if (!after) return undefined;
    const before = open.roles.reference && (await solve(open, 'test', open.roles.reference, signal));
    const chosen = validation.problems.length > 0 && (await solve(open, 'validation', open.roles, signal));
    if (signal.aborted) return undefined;
    const groups = solvedByGroup(test.problems, after);
    await writeSolvedProblems(
      open.run.path,
      test.problems.map(({ problem, answer }, i) => ({ problem, answer, samples: after[i] ?? [] })),
    );
    const solved: SolvedReport = {
      method: open.config.method,
      unit: 'problems',
      data: { problems: test.problems.length, trained_tokens: tokens },
      metrics: flatMetrics(groups),
      ...(chosen ? { metrics_validation: flatMetrics(solvedByGroup(validation.problems, chosen)) } : {}),
      models: { ...(before ? { before: solvedByGroup(test.problems, before) } : {}), after: groups },
    };
    return {
      metrics: {
        accuracy: accuracyOf(after),
        ...(before ? { accuracy_before: accuracyOf(before) } : {}),
      },
      solved,
    };
  },
};

function samplingOf({ config, data, roles, tokenizer, cacheBytes }: PpoRun): LocalSamplerOptions {
  const { rollout, run } = config;
  return {
    decoder: roles.decoder,
    role: roles.policy,
    tokenizer,
    sampling: { ...rollout, stop: [...data.stop, ...rollout.stop] },
    seed: run.seed,
    cacheBytes,
  };
}

function solve(
  open: PpoRun,
  part: 'validation' | 'test',
  of: {
    readonly decoder: PlacedRole['decoder'];
    readonly policy?: PlacedRole['role'];
    readonly role?: PlacedRole['role'];
  },
  signal: AbortSignal,
) {
  const { decoder, role = of.policy ?? {} } = of;
  const { n } = open.config.eval;
  return solveHeldOut(open.data.parts[part], { ...samplingOf(open), decoder, role, n, signal });
}
