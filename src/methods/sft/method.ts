/** `method: sft`: supervised fine-tuning on the verdict after each step. */
import { selectionOf } from '../../data/rare-class.js';
import type { Method } from '../../train/method.js';
import { configuredTrainee, type Trainee, traineeRole } from '../../train/roles/trainee.js';
import { supervisedStage } from '../../train/supervised.js';
import { type VerdictData, verdictData, verdictPreview } from '../../train/verdicts/data.js';
import { finalEvaluation, shortMetrics, validationMetrics } from '../../train/verdicts/evaluation.js';
import type { SftRunConfig } from './config.js';

export const sft: Method<SftRunConfig, VerdictData, Trainee> = {
  data: verdictData,
  preview: verdictPreview,
  memory: (config) => [traineeRole(config)],
  roles: (context) => configuredTrainee(context),
  stages(open) {
    const { config, data, roles } = open;
    const { decoder, role, trained } = roles;
    if (config.sft.num_train_epochs === 0) return [];
    return [
      supervisedStage({
        name: 'sft',
        decoder,
        role,
        parameters: trained,
        sequences: data.sequences.train,
        sizes: data.learnedSizes(),
        optimization: config.sft,
        microBatchTokens: open.microBatchTokens('sft'),
        best: selectionOf(config.eval_verdicts.metric_for_best_model, data.labels),
        seed: config.run.seed,
        tokens: config.run.max_tokens,
        validate: (stop) => validationMetrics(open, role, stop),
      }),
    ];
  },
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open, { tokens, unchanged }, signal) {
    const { role } = open.roles;
    const more = { data: { trained_tokens: tokens }, isUntrained: unchanged.includes('sft') };
    const report = await finalEvaluation(open, role, {}, more, signal);
    return report && { report, metrics: shortMetrics(report.metrics) };
  },
};
