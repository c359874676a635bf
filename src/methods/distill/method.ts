/** `method: distill`: a student learns a teacher's next-token distribution on solutions that it samples itself. */
import { concurrencyOf, rowsOf } from '../../config/sampling.js';
import { answerTokenizer } from '../../scoring/implicit/tokens.js';
import { warn } from '../../terminal/log.js';
import { segmentTokenizer } from '../../tokenizer/segments.js';
import { AdamW, adamSettings } from '../../train/adamw.js';
import type { Method, OpenRun } from '../../train/method.js';
import { policyStage } from '../../train/policy/stage.js';
import { type AskedProblems, askedProblems } from '../../train/solutions/asked.js';
import { accuracyOf } from '../../train/solutions/held-out.js';
import { mixedBatches, mixWarnings } from '../../train/solutions/mix.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import type { OpenTraining, TrainingStage } from '../../train/stage.js';
import { BASE, type BaseSolutions, baseSolutions, baseStage } from '../ppo/base.js';
import { type SolutionGroup, solutionRollouts } from '../ppo/rollout.js';
import { solutionMetrics, solutionSamples } from '../ppo/samples.js';
import { rolloutSolutions, samplingOf, solve, solvedBeforeAndAfter } from '../ppo/solving.js';
import type { DistillConfig } from './config.js';
import { readsBranches } from './local-teacher.js';
import { distillObjective } from './objective.js';
import { type DistillRoles, distillRoles, plannedRoles } from './roles.js';
import { distillRollouts } from './rollouts.js';
import { weighing, weighted } from './weighing.js';

type DistillRun = OpenRun<DistillConfig, AskedProblems, DistillRoles>;

export const distill: Method<DistillConfig, AskedProblems, DistillRoles> = {
  data(config, tokenizer) {
    const { template, max_new_tokens: maxNewTokens } = config.rollout;
    return askedProblems(config, tokenizer, { template, maxNewTokens });
  },
  preview(_config, tokenizer) {
    const tokenize = segmentTokenizer(tokenizer);
    return ({ problem }) => [
      { title: 'a problem', sequence: tokenize([{ text: problem, role: 'prompt', train: false }]) },
    ];
  },
  memory: plannedRoles,
  sampling: ({ data, rollout }) => ({ longest: data.max_length, rows: rowsOf(rollout.max_rows) }),
  roles: distillRoles,
  stages(open) {
    const base = () => baseSolutions(open);
    return [
      baseStage(open, samplingOf(open), { settings: open.config.distill, rewarded: [] }),
      studentStage(open, async (signal, step) => {
        const solved = step === 0 ? (await base()).validation : await solve(open, 'validation', signal);
        return solved && { accuracy: accuracyOf(solved) };
      }),
    ];
  },
  // The solutions of the student before training come from it alone.
  shared: () => [{ stage: BASE, unread: ['distill', 'teacher'] }],
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open, { tokens }, signal) {
    const before: BaseSolutions = await baseSolutions(open);
    return solvedBeforeAndAfter(open, before, tokens, signal);
  },
};

function studentStage(open: DistillRun, validate: NonNullable<OpenTraining['validate']>): TrainingStage {
  const { config, data, roles, tokenizer } = open;
  const { rollout, teacher, run } = config;
  const { problems, prompts } = data.parts.train;
  const { batch_problems: rollout_batch, ...settings } = config.distill;
  const learning_rate =
    settings.learning_rate === 'auto' ? (config.lora === 'none' ? 1e-6 : 1e-5) : settings.learning_rate;
  const microBatchTokens = open.microBatchTokens('distill');
  const promptOf = (item: number) => prompts[item] as SolutionPrompt;
  const problemOf = (item: number) => problems[item] as (typeof problems)[number];
  const common = { roles, promptOf, temperature: rollout.temperature, microBatchTokens };
  const loop = {
    ...{ ...settings, learning_rate, rollout_batch },
    // Each batch is learned once, in one step, and nothing holds the student near where it began.
    ...({ num_ppo_epochs: 1, num_mini_batches: 1, kl_in: 'loss', kl_coef: 0 } as const),
  };
  const groups = prompts.map((prompt, i) => prompt && { group: problems[i]?.group });
  for (const warning of mixWarnings(groups, { batchSize: rollout_batch, weights: rollout.mix }))
    warn(warning);
  return policyStage<SolutionGroup>({
    name: 'distill',
    settings: loop,
    iterations: mixedBatches(groups, {
      batchSize: rollout_batch,
      epochs: settings.num_train_epochs,
      maxBatches: settings.max_iterations > 0 ? settings.max_iterations : undefined,
      seed: run.seed,
      weights: rollout.mix,
    }),
    batching: { 'distill.problems': problems.length, 'distill.num_generations': rollout.num_generations },
    trains: roles.policyParameters,
    optimizer: () => new AdamW(roles.policyParameters, adamSettings(loop)),
    parts: () => ({
      rollouts: distillRollouts({
        ...{ promptOf, problemOf, lmbda: settings.lmbda, seed: run.seed, longest: rollout.max_new_tokens },
        device: roles.decoder.device,
        onPolicy: solutionRollouts({
          ...common,
          roles: { ...roles, reference: undefined, critic: undefined },
          settings: { branches: readsBranches(roles.decoder.config) },
          source: rolloutSolutions(open, samplingOf(open)),
          n: rollout.num_generations,
          // A server's samples are checked against the student's own log-probs.
          scoredLater: rollout.server === undefined,
        }),
        answers: answerTokenizer(tokenizer, rollout.template),
        teacher:
          teacher.url === undefined
            ? undefined
            : {
                url: teacher.url,
                model: teacher.served_model,
                concurrency: concurrencyOf(rollout.max_rows),
                tokenizer,
              },
      }),
      rewards: weighing({ judge: roles.judge, problemOf, tokenizer, settings }),
      advantage: weighted,
      objective: distillObjective({ ...common, teacher: roles.teacher, beta: settings.beta }),
    }),
    seed: run.seed,
    maxDifference: rollout.server?.max_difference,
    best: 'accuracy',
    begin: async () => {},
    validate,
    describe: solutionMetrics,
    onRollout: (groups, iteration) => {
      for (const sample of solutionSamples(groups, problems, iteration)) open.run.samples.append(sample);
    },
  });
}
