/** `method: stepamc` (arXiv 2503.18432): warm-up, reward network, space-constrained policy; and its baselines. */
import { verdictTemplate } from '../../data/verdict.js';
import type { Role } from '../../models/decoder.js';
import { readMetric } from '../../run/log-file.js';
import {
  finalEvaluation,
  shortMetrics,
  type VerdictEvaluationContext,
  validationMetrics,
} from '../../train/evaluation.js';
import type { Method, OpenRun } from '../../train/method.js';
import type { Stage, TrainingStage } from '../../train/stage.js';
import { supervisedStage } from '../../train/supervised.js';
import { type VerdictData, verdictData, verdictPreview } from '../../train/verdict-data.js';
import type { StepAmcRunConfig } from './config.js';
import { dpoStage } from './dpo.js';
import { policyTokens, scpoStage } from './policy.js';
import { networkStage, networkTokens, rewardData } from './reward/data.js';
import { createStepAmcRoles, type StepAmcRoles } from './roles.js';
import { hasOneTokenWords } from './sampling.js';

export type StepAmcRun = OpenRun<StepAmcRunConfig, VerdictData, StepAmcRoles>;

/** XORed into the seed of a continued warm-up, so that it does not repeat the order of the first epochs. */
const CONTINUED_SEED = 0xc047;

export const stepAmc: Method<StepAmcRunConfig, VerdictData, StepAmcRoles> = {
  data: verdictData,
  preview: verdictPreview,
  memory: () => [
    { role: 'policy', held: 'trained', head: { outputs: 1, bias: true } },
    { role: 'reference', held: 'frozen' },
    { role: 'reward', held: 'trained', head: { outputs: 1, bias: false } },
  ],
  // Words of one token are drawn in the pass that scores them, without a page.
  sampling({ baseline, ppo, prompt, data }, tokenizer) {
    const sampled = baseline === 'none' && ppo.rollout === 'sample';
    if (!sampled || hasOneTokenWords(verdictTemplate(prompt, tokenizer))) return undefined;
    return { longest: data.max_length };
  },
  roles: ({ device, config: { model, lora, run } }) => {
    // config.ts refuses this.
    if (lora === 'none') throw new RangeError('stepamc needs lora');
    return createStepAmcRoles(device, {
      model,
      lora,
      seed: run.seed,
      gradientCheckpointing: run.gradient_checkpointing,
    });
  },
  stages,
  save: ({ roles, run }, stages) => roles.save((name) => run.file(name), { reward: stages.includes('frn') }),
  async evaluate(open, { tokens }, signal) {
    const { config, roles, run } = open;
    const before: Readonly<Record<string, Role>> = config.baseline === 'sft' ? {} : { sft: roles.reference };
    const report = await finalEvaluation(
      evaluationOf(open),
      roles.policy,
      before,
      {
        data: { trained_tokens: tokens, ...describeVariant(config) },
        valueLosses: readMetric(run.metrics.path, 'value_loss'),
      },
      signal,
    );
    return report && { report, metrics: shortMetrics(report.metrics) };
  },
};

/** The stages that `baseline` and `ablation` ask for. */
function stages(open: StepAmcRun): readonly Stage[] {
  const { config, data, roles } = open;
  const { seed } = config.run;
  const { decoder, policy, policyParameters } = roles;
  const validate = (stop: AbortSignal) => validationMetrics(evaluationOf(open), policy, stop);
  const warmUp = {
    decoder,
    role: policy,
    parameters: policyParameters,
    sequences: data.sequences.train,
    optimization: config.sft,
    microBatchTokens: open.microBatchTokens('sft'),
    best: 'f1_macro',
    validate,
  };
  const sft = supervisedStage({ ...warmUp, name: 'sft', seed });
  if (config.baseline === 'sft') return [sft];
  const rewards = rewardData(open, 'train');
  // Baselines that continue after the warm-up get the token budget of reward network and policy.
  const budget = () => policyTokens(open) + networkTokens(open, rewards);
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
          microBatchTokens: open.microBatchTokens('dpo'),
          seed: seed ^ CONTINUED_SEED,
          tokens: budget(),
          validate,
        }),
      ];
    case 'none':
      return config.ablation.no_frn
        ? [sft, scpoStage(open, undefined, validate)]
        : [sft, networkStage(open, rewards), scpoStage(open, rewards, validate)];
  }
}

/** A continued warm-up is compared with the model it continues. */
function keepingReference(stage: TrainingStage, roles: StepAmcRoles): TrainingStage {
  return {
    ...stage,
    open: () => ({ ...stage.open(), begin: () => roles.keepReference() }),
  };
}

function evaluationOf(open: StepAmcRun): VerdictEvaluationContext {
  const { config, data, roles, run } = open;
  return { config, data, run, decoder: roles.decoder, microBatchTokens: open.microBatchTokens('sft') };
}

function describeVariant({ baseline, ablation }: StepAmcRunConfig): Record<string, unknown> {
  const left = Object.entries(ablation).flatMap(([name, on]) => (on ? [name] : []));
  return { ...(baseline === 'none' ? {} : { baseline }), ...(left.length > 0 ? { ablation: left } : {}) };
}
