/** `method: reward`: models of steps (PRM), of outcomes (ORM), or of both. */

import { type ClassWeight, weighsClasses } from '../../data/rare-class.js';
import { CLASSES, classIndex, type ScoredRow } from '../../scoring/reward-model/items.js';
import { type RewardNetwork, rewardNetwork } from '../../scoring/reward-model/network.js';
import type { Method } from '../../train/method.js';
import { configuredTrainee, type Trainee, traineeRole } from '../../train/roles/trainee.js';
import type { AdapterHead } from '../../weights/adapter.js';
import { outputsOf, type RewardRunConfig } from './config.js';
import { type RewardData, rewardData, rewardPreview } from './data.js';
import { metricsOf, type RewardRun, rewardReport } from './reward-report.js';
import { rewardTraining } from './stage.js';

export const reward: Method<RewardRunConfig, RewardData, Trainee> = {
  data: rewardData,
  preview: rewardPreview,
  memory: (config) => [traineeRole(config, headOf(config))],
  roles: (context) => configuredTrainee(context, headOf(context.config)),
  stages(open) {
    return [rewardTraining(open, networkOf(open), weights(open))];
  },
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open, { tokens }, signal) {
    const report = await rewardReport(open, networkOf(open), tokens, signal);
    return report && { report, metrics: metricsOf(report.metrics) };
  },
};

/** The head as in transformers: on tokens or, for outcomes alone, on the sequence. None for verdict words. */
function headOf(config: Pick<RewardRunConfig, 'data' | 'reward_model'>): AdapterHead | undefined {
  const { type, head } = config.reward_model;
  if (head === 'verdict') return undefined;
  const numLabels = outputsOf(config);
  if (config.data.neutral === 'class') return { kind: 'token', numLabels, labels: CLASSES, bias: true };
  return type === 'orm'
    ? { kind: 'sequence', numLabels, bias: false }
    : { kind: 'token', numLabels, bias: true };
}

function networkOf({ config, data, roles }: RewardRun): RewardNetwork {
  return rewardNetwork(roles, config.reward_model, data.tokenizer);
}

/** The weight of each row by its class and by what it is. */
function weights({ config, data }: RewardRun): (row: ScoredRow) => number {
  const { reward_model: reward } = config;
  const classes = config.data.neutral === 'class' ? 3 : 2;
  const classOf = (row: ScoredRow) => (classes === 3 ? classIndex(row) : row.label === 1 ? 1 : 0);
  const counts = { step: [0, 0, 0], outcome: [0, 0, 0] };
  if (reward.class_weight !== 'none')
    for (const { rows } of data.items.train) for (const row of rows) counts[row.what][classOf(row)]!++;
  const weighed = {
    step: isWeighed(reward.class_weight, counts.step),
    outcome: isWeighed(reward.class_weight, counts.outcome),
  };
  return (row) => {
    const own = row.what === 'outcome' && reward.type === 'joint' ? reward.outcome_weight : 1;
    if (!weighed[row.what]) return own;
    const ofWhat = counts[row.what];
    const n = ofWhat.reduce((sum, count) => sum + count, 0);
    return (own * n) / (classes * (ofWhat[classOf(row)] as number));
  };
}

/** Counts of wrong and right, whatever is neutral. */
const isWeighed = (weight: ClassWeight, [negative = 0, positive = 0]: readonly number[]) =>
  weighsClasses(weight, { positive, negative });
