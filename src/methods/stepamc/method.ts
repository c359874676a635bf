/** `method: stepamc` (arXiv 2503.18432): warm-up, reward network, space-constrained policy; and its baselines. */
import { adapterUse } from '../../config/adapter.js';
import { selectionOf } from '../../data/rare-class.js';
import { verdictTemplate } from '../../data/verdict.js';
import { readMetric } from '../../run/log-file.js';
import {
  finalEvaluation,
  type PartVerdicts,
  roleJudge,
  shortMetrics,
  validationMetrics,
} from '../../train/evaluation.js';
import type { Method } from '../../train/method.js';
import type { StageEntry } from '../../train/stage.js';
import { supervisedStage } from '../../train/supervised.js';
import { type VerdictData, verdictData, verdictPreview } from '../../train/verdict-data.js';
import {
  comparesWithContinued,
  hasNetwork,
  hasWarmUp,
  type StepAmcRunConfig,
  usesUnlabelled,
} from './config.js';
import { dpoStage } from './dpo.js';
import { jointTokens, policyTokens, scpoStage } from './policy.js';
import { expectedPseudoLabelTokens, labellingStage, pseudoLabelStage } from './pseudo-labels.js';
import { rewardData } from './reward/data.js';
import { judgeByNetwork } from './reward/judge.js';
import { networkStage, networkTokens } from './reward/stage.js';
import { createStepAmcRoles, type StepAmcRoles } from './roles.js';
import type { StepAmcRun } from './run.js';
import { hasOneTokenWords } from './sampling.js';

/** XORed into the seed of a continued warm-up, so that it does not repeat the order of the first epochs. */
const CONTINUED_SEED = 0xc047;

export const stepAmc: Method<StepAmcRunConfig, VerdictData, StepAmcRoles> = {
  data: (config, tokenizer, signal) =>
    verdictData(config, tokenizer, signal, { unlabelled: usesUnlabelled(config) }),
  preview: verdictPreview,
  memory: (config) => [
    ...(config.lora === 'none' ? [{ role: 'base', held: 'loaded' } as const] : []),
    { role: 'policy', held: 'trained', head: { outputs: 1, bias: true } },
    { role: 'reference', held: 'frozen' },
    ...(comparesWithContinued(config) ? [{ role: 'continued', held: 'frozen' } as const] : []),
    { role: 'reward', held: 'trained', head: { outputs: 1, bias: false } },
    ...(adapterUse(config.model).start === undefined
      ? []
      : [{ role: 'base adapter', held: 'frozen' } as const]),
  ],
  // Words of one token are drawn in the pass that scores them, without a page.
  sampling({ baseline, verdict_ppo: ppo, prompt, data }, tokenizer) {
    const template = verdictTemplate(prompt, tokenizer);
    const sampled = baseline === 'none' && ppo.rollout === 'sample';
    // Where answers have reasons, evaluations sample too.
    if (template.rationaleTokens === 0 && (!sampled || hasOneTokenWords(template))) return undefined;
    return { longest: data.max_length };
  },
  roles: ({ device, config }) => {
    const { model, lora, run } = config;
    return createStepAmcRoles(device, {
      model,
      lora,
      seed: run.seed,
      gradientCheckpointing: run.gradient_checkpointing,
      continued: comparesWithContinued(config),
    });
  },
  stages,
  shared(config) {
    const later = [
      'verdict_ppo',
      'constraint',
      'sft_continued',
      'verdict_dpo',
      'pseudo_labels',
      'ablation',
      'baseline',
    ];
    // Whether steps without a label are among the data; what else is learned from them comes later.
    const decided = { unlabelled: usesUnlabelled(config) };
    return [
      ...(hasWarmUp(config) ? [{ stage: 'sft', unread: [...later, 'frn'], decided }] : []),
      ...(hasNetwork(config) ? [{ stage: 'frn', unread: later, decided }] : []),
    ];
  },
  save: ({ roles, run, tokenizer }, stages) =>
    roles.save((name) => run.file(name), { reward: stages.includes('frn'), tokenizer }),
  async evaluate(open, { tokens }, signal) {
    const { config, roles, run } = open;
    const network = await judgedNetwork(open, signal);
    if (signal.aborted) return undefined;
    const report = await finalEvaluation(
      open,
      roles.policy,
      otherJudges(open, network),
      {
        data: { trained_tokens: tokens, ...describeVariant(config) },
        valueLosses: readMetric(run.metrics.path, 'value_loss'),
        ...(network
          ? { rewardNetwork: { validation: network.validation.report, test: network.test.report } }
          : {}),
      },
      signal,
    );
    return report && { report, metrics: shortMetrics(report.metrics) };
  },
};

/** The network as it ended; undefined if the run has none or the signal stopped it. */
async function judgedNetwork(open: StepAmcRun, signal: AbortSignal) {
  if (!hasNetwork(open.config)) return undefined;
  const validation = await judgeByNetwork(open, 'validation', signal);
  const test = validation && (await judgeByNetwork(open, 'test', signal, validation.scale));
  return test && { validation, test };
}

/** What stands beside the trained policy in the table, in the order of training. */
function otherJudges(
  open: StepAmcRun,
  network: Awaited<ReturnType<typeof judgedNetwork>>,
): Readonly<Record<string, PartVerdicts>> {
  const { config, roles } = open;
  const byWords = (role: StepAmcRoles['policy']) => roleJudge(open, role);
  const trained = config.baseline !== 'sft';
  return {
    // Without a warm-up the run began with the policy's reference.
    ...(hasWarmUp(config) || !trained ? { base: byWords(roles.base) } : {}),
    ...(trained ? { sft: byWords(roles.reference) } : {}),
    ...(roles.continued ? { sft_continued: byWords(roles.continued) } : {}),
    ...(network ? { frn: async (part) => network[part].judged } : {}),
  };
}

/** The stages that `baseline` and `ablation` ask for. */
function stages(open: StepAmcRun): readonly StageEntry[] {
  const { config, data, roles } = open;
  const { seed } = config.run;
  const continuedSeed = (seed ^ CONTINUED_SEED) >>> 0;
  const { decoder, policy, policyParameters } = roles;
  const validate = (stop: AbortSignal) => validationMetrics(open, policy, stop);
  const warmUp = {
    decoder,
    role: policy,
    parameters: policyParameters,
    sequences: data.sequences.train,
    optimization: config.sft,
    microBatchTokens: open.microBatchTokens('sft'),
    best: selectionOf(config.eval_verdicts.metric_for_best_model, data.labels),
    validate,
  };
  const sft = hasWarmUp(config) ? [supervisedStage({ ...warmUp, name: 'sft', seed })] : [];
  if (config.baseline === 'sft') return sft;
  const rewards = rewardData(open, 'train');
  // What trains instead of reward network and policy, or to be compared with them, gets their budget of tokens. Beside a
  // policy without a network there is no network to match.
  const hasBudgetOfNetwork = config.baseline !== 'none' || hasNetwork(config);
  const budget = () =>
    policyTokens(open) + (hasBudgetOfNetwork ? networkTokens(open, rewards) + jointTokens(open, rewards) : 0);
  const continued = () =>
    supervisedStage({
      ...warmUp,
      optimization: config.sft_continued,
      microBatchTokens: open.microBatchTokens('sft_continued'),
      name: 'sft_continued',
      seed: continuedSeed,
      tokens: budget(),
      // It is compared with the model that it continues, and beside StepAMC it then gives way to the warm-up again.
      begin: () => roles.keepReference(),
      end: async () => {
        if (roles.continued) await roles.keepContinued();
      },
    });
  switch (config.baseline) {
    case 'sft_continued':
      return [...sft, continued()];
    case 'dpo':
      return [...sft, dpoStage(open, { seed: continuedSeed, tokens: budget(), validate })];
    case 'pseudo_labels': {
      const network = hasNetwork(config);
      const learned = () => ({ tokens: network ? policyTokens(open) : budget(), seed: continuedSeed });
      return [
        ...sft,
        ...(network ? [networkStage(open, rewards)] : []),
        labellingStage(open),
        {
          name: 'pseudo_labels',
          expectedTokens: () => expectedPseudoLabelTokens(open, learned()),
          prepare: async () => pseudoLabelStage(open, { ...learned(), validate }),
        },
      ];
    }
    case 'none':
      return [
        ...sft,
        ...(comparesWithContinued(config) ? [continued()] : []),
        ...(config.ablation.no_frn
          ? [scpoStage(open, undefined, validate)]
          : [networkStage(open, rewards), scpoStage(open, rewards, validate)]),
      ];
  }
}

function describeVariant({ baseline, ablation }: StepAmcRunConfig): Record<string, unknown> {
  const left = Object.entries(ablation).flatMap(([name, on]) => (on ? [name] : []));
  return { ...(baseline === 'none' ? {} : { baseline }), ...(left.length > 0 ? { ablation: left } : {}) };
}
