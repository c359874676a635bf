/** `method: stepamc` (arXiv 2503.18432): warm-up, reward network, space-constrained policy; and its baselines. */
import type { StepAmcRunConfig } from '../config/schema.js';
import { indices, subset } from '../data/dataset.js';
import { readFigure } from '../run/log-file.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import type { RunContext } from './context.js';
import { runStages } from './engine.js';
import { type EvaluationContext, finalEvaluation, shortFigures, validationFigures } from './evaluation.js';
import { writeHeldMemory } from './held-memory.js';
import { settleMicroBatch } from './memory-plan.js';
import { reportData } from './notes.js';
import { dpoStage } from './policy/dpo.js';
import { type PolicyStageOptions, policyStage, policyTokens } from './policy/stage.js';
import type { RunResult } from './result.js';
import { type RewardUnit, rewardUnits } from './reward/pairs.js';
import { type RewardSequence, rewardSequence } from './reward/score.js';
import { comparePairs, rewardStage, rewardTokens } from './reward/stage.js';
import { createStepAmcRoles, type StepAmcRoles } from './roles.js';
import type { StagePlan } from './stage.js';
import { supervisedStage } from './supervised.js';
import { type VerdictData, verdictData } from './verdict-data.js';

type StepAmcContext = RunContext<StepAmcRunConfig>;

/** Where the order of a continued warm-up comes from, so that it does not repeat the first epochs. */
const CONTINUED_SEED = 0xc047;

export async function runStepAmc(context: StepAmcContext): Promise<RunResult> {
  const { config, device, run, signal } = context;
  // Refused with the configuration, see config/checks.ts.
  if (config.lora === 'none') throw new RangeError('stepamc needs lora');
  const tokenizer = await configuredTokenizer(config.model);
  const data = await verdictData(config, tokenizer, signal);
  if (!data) return { status: 'interrupted', step: 0 };
  reportData(data);
  const roles = await createStepAmcRoles(device, {
    model: config.model,
    lora: config.lora,
    seed: config.run.seed,
    gradientCheckpointing: config.run.gradient_checkpointing,
  });
  try {
    const stages = planStages(context, roles, data);
    await writeHeldMemory(run, config, roles.decoder, roles.held);
    const result = await runStages(stages, roles.parameters, context.engine);
    if (result.status === 'finished' || context.outOfTime()) {
      const trained = stages.slice(0, result.stage + 1);
      await roles.save((name) => run.file(name), { reward: trained.some(({ name }) => name === 'frn') });
    }
    if (result.status === 'interrupted') return result;
    const evaluation = evaluationContext(context, roles, data);
    const report = await finalEvaluation(
      evaluation,
      roles.policy,
      stages.length > 1 ? { sft: roles.reference } : {},
      {
        data: { trained_tokens: result.tokens, ...describeVariant(config) },
        valueLosses: readFigure(run.metrics.path, 'value_loss'),
      },
      signal,
    );
    if (!report) return { status: 'interrupted', step: result.step };
    run.metrics.append({ step: result.step, phase: 'test', ...shortFigures(report.metrics) });
    return { ...result, evaluation: report };
  } finally {
    roles.dispose();
    data.close();
  }
}

/** The stages that `baseline` and `ablation` ask for. */
function planStages(context: StepAmcContext, roles: StepAmcRoles, data: VerdictData): StagePlan[] {
  const { config } = context;
  const { seed } = config.run;
  const { decoder, policy, policyParameters } = roles;
  const tokensFor = (name: 'sft' | 'frn' | 'ppo' | 'dpo') =>
    settleMicroBatch(config, name, config[name], {
      device: context.device,
      decoder: decoder.config,
      saved: context.savedPlan,
    });
  const evaluation = evaluationContext(context, roles, data);
  const validate = (stop: AbortSignal) => validationFigures(evaluation, policy, stop);
  const warmUp = {
    decoder,
    role: policy,
    parameters: policyParameters,
    sequences: data.sequences.train,
    optimization: config.sft,
    microBatchTokens: tokensFor('sft'),
    best: 'f1_macro',
    validate,
  };
  const sft = supervisedStage({ ...warmUp, name: 'sft', seed });
  if (config.baseline === 'sft') return [sft];

  const reward = rewardData(config, data, 'train');
  const frn = {
    roles,
    units: reward.units(indices(data.sequences.train)),
    settings: config.frn,
    microBatchTokens: tokensFor('frn'),
    seed,
  };
  const policyOptions: PolicyStageOptions = {
    roles,
    config,
    tokenizer: data.tokenizer,
    sequences: data.sequences.train,
    rewardSequences: reward.sequences,
    unitsAmong: reward.units,
    microBatchTokens: tokensFor('ppo'),
    seed,
    maxSkipped: config.run.max_skipped_steps,
    validate,
    onRollout: (questions, iteration) => {
      for (const sample of rolloutSamples(questions, data, iteration)) context.run.samples.append(sample);
    },
  };
  const budget = () => policyTokens(policyOptions) + rewardTokens(frn);
  switch (config.baseline) {
    case 'sft_continued':
      return [
        sft,
        keepingReference(
          supervisedStage({
            ...warmUp,
            name: 'sft_continued',
            seed: seed ^ CONTINUED_SEED,
            tokens: budget(),
          }),
          roles,
        ),
      ];
    case 'dpo':
      return [
        sft,
        dpoStage({
          roles,
          settings: config.dpo,
          sequences: data.sequences.train,
          microBatchTokens: tokensFor('dpo'),
          seed: seed ^ CONTINUED_SEED,
          tokens: budget(),
          validate,
        }),
      ];
    case 'none': {
      const ppo = policyStage(policyOptions);
      if (config.ablation.no_frn) return [sft, ppo];
      const heldOut = rewardData(config, data, 'validation');
      const units = heldOut.units(indices(data.sequences.validation));
      const validateReward = async (stop: AbortSignal) => {
        if (stop.aborted) return undefined;
        const { figures } = await comparePairs(roles, units, {
          settings: config.frn,
          microBatchTokens: frn.microBatchTokens,
        });
        return { ...figures };
      };
      const paired = units.some(({ pairs }) => pairs.length > 0);
      return [sft, rewardStage({ ...frn, validate: paired ? validateReward : undefined }), ppo];
    }
  }
}

/** A continued warm-up is compared with what it continues. */
function keepingReference(plan: StagePlan, roles: StepAmcRoles): StagePlan {
  return {
    ...plan,
    open: () => ({ ...plan.open(), begin: () => roles.keepReference() }),
  };
}

interface RewardData {
  readonly sequences: readonly RewardSequence[];
  /** Units of the chosen sequences. */
  units(chosen: readonly number[]): RewardUnit[];
}

function rewardData(
  { frn }: StepAmcRunConfig,
  { sequences, records, tokenizer }: VerdictData,
  part: 'train' | 'validation',
): RewardData {
  const own = sequences[part];
  const rewards = Array.from(own, (sequence) => rewardSequence(sequence, tokenizer, frn.pair_mode));
  return {
    sequences: rewards,
    units: (chosen) =>
      rewardUnits(
        subset(own, chosen),
        chosen.map((i) => rewards[i] as RewardSequence),
        chosen.map((i) => records[part].get(i).problem),
        frn.pair_mode,
      ),
  };
}

function evaluationContext(
  { config, device, run, savedPlan }: StepAmcContext,
  { decoder }: StepAmcRoles,
  data: VerdictData,
): EvaluationContext {
  const microBatchTokens = settleMicroBatch(config, 'sft', config.sft, {
    device,
    decoder: decoder.config,
    saved: savedPlan,
  });
  return { config, decoder, data, run, microBatchTokens };
}

function describeVariant({ baseline, ablation }: StepAmcRunConfig): Record<string, unknown> {
  const left = Object.entries(ablation).flatMap(([name, on]) => (on ? [name] : []));
  return { ...(baseline === 'none' ? {} : { baseline }), ...(left.length > 0 ? { ablation: left } : {}) };
}

/** Rollouts to read: the first few questions of an iteration. */
const SHOWN_SAMPLES = 4;

function* rolloutSamples(
  questions: Parameters<NonNullable<PolicyStageOptions['onRollout']>>[0],
  { records }: VerdictData,
  iteration: number,
): Generator<Record<string, unknown>> {
  for (const { solution, step, label, answers } of questions.slice(0, SHOWN_SAMPLES)) {
    const record = records.train.get(solution);
    yield {
      iteration,
      problem: record.problem,
      steps: record.steps.slice(0, step + 1).map(({ text }) => text),
      label,
      answers: answers.map((answer) => ({
        verdict: answer.verdict ?? null,
        tokens: answer.tokens,
        logprob: answer.oldLogprobs.reduce((sum, logprob) => sum + logprob, 0),
        reward: answer.reward,
        advantages: answer.advantages,
      })),
    };
  }
}
