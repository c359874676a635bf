import { selectionOf } from '../../data/rare-class.js';
import { verdictTemplate } from '../../data/verdict.js';
import { readMetric } from '../../run/log-file.js';
import type { Method } from '../../train/method.js';
import { rolesOptions } from '../../train/roles/roles.js';
import type { StageEntry } from '../../train/stage.js';
import { supervisedStage } from '../../train/supervised.js';
import { type VerdictData, verdictData, verdictPreview } from '../../train/verdicts/data.js';
import {
  finalEvaluation,
  type PartVerdicts,
  roleJudge,
  shortMetrics,
  validationMetrics,
} from '../../train/verdicts/evaluation.js';
import { hasNetwork, hasWarmUp, type StepAmcRunConfig, usesUnlabelled } from './config.js';
import { scpoStage } from './policy.js';
import { rewardData } from './reward/data.js';
import { judgeByNetwork } from './reward/judge.js';
import { networkStage } from './reward/stage.js';
import { createStepAmcRoles, type StepAmcRoles, stepAmcRoles } from './roles.js';
import type { StepAmcRun } from './run.js';
import { hasOneTokenWords } from './sampling.js';

export const stepAmc: Method<StepAmcRunConfig, VerdictData, StepAmcRoles> = {
  data: (config, tokenizer, signal) =>
    verdictData(config, tokenizer, signal, { unlabelled: usesUnlabelled(config) }),
  preview: verdictPreview,
  memory: stepAmcRoles,
  // Words of one token are drawn in the pass that scores them, without a page.
  sampling({ verdict_ppo: ppo, prompt, data }, tokenizer) {
    const template = verdictTemplate(prompt, tokenizer);
    // With reasons, evaluations sample too.
    if (template.rationaleTokens === 0 && (ppo.rollout !== 'sample' || hasOneTokenWords(template)))
      return undefined;
    return { longest: data.max_length };
  },
  roles: ({ device, config }) => createStepAmcRoles(device, rolesOptions(config)),
  stages,
  shared(config) {
    const later = ['verdict_ppo', 'constraint', 'ablation'];
    // Whether steps without a label are among the data; what else is learned from them comes later.
    const decided = { unlabelled: usesUnlabelled(config) };
    return [
      ...(hasWarmUp(config) ? [{ stage: 'sft', unread: [...later, 'reward_network'], decided }] : []),
      ...(hasNetwork(config) ? [{ stage: 'reward_network', unread: later, decided }] : []),
    ];
  },
  save: ({ roles, run, tokenizer }, stages) =>
    roles.save((name) => run.file(name), { reward: stages.includes('reward_network'), tokenizer }),
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

/** The judges beside the trained policy in the table, in the order of training. */
function otherJudges(
  open: StepAmcRun,
  network: Awaited<ReturnType<typeof judgedNetwork>>,
): Readonly<Record<string, PartVerdicts>> {
  const { config, roles } = open;
  return {
    // Without a warm-up the run began with the policy's reference.
    ...(hasWarmUp(config) ? { base: roleJudge(open, roles.base) } : {}),
    sft: roleJudge(open, roles.reference),
    ...(network ? { reward_network: async (part) => network[part].judged } : {}),
  };
}

/** The stages that the warm-up and `ablation` ask for. */
function stages(open: StepAmcRun): readonly StageEntry[] {
  const { config, data, roles } = open;
  const { decoder, policy, policyParameters } = roles;
  const validate = (stop: AbortSignal) => validationMetrics(open, policy, stop);
  const warmUp = () =>
    supervisedStage({
      name: 'sft',
      decoder,
      role: policy,
      parameters: policyParameters,
      sequences: data.sequences.train,
      sizes: data.learnedSizes(),
      optimization: config.sft,
      microBatchTokens: open.microBatchTokens('sft'),
      best: selectionOf(config.eval_verdicts.metric_for_best_model, data.labels),
      seed: config.run.seed,
      validate,
    });
  const network = hasNetwork(config) ? rewardData(open, 'train') : undefined;
  return [
    ...(hasWarmUp(config) ? [warmUp()] : []),
    ...(network ? [networkStage(open, network)] : []),
    scpoStage(open, network, validate),
  ];
}

function describeVariant({ ablation }: StepAmcRunConfig): Record<string, unknown> {
  const left = Object.entries(ablation).flatMap(([name, on]) => (on ? [name] : []));
  return left.length > 0 ? { ablation: left } : {};
}
