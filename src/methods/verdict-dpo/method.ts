/** `method: verdict_dpo`: direct preference optimisation, the right verdict over the wrong one after each step. */

import type { Method, OpenRun } from '../../train/method.js';
import { type VerdictData, type VerdictRun, verdictData, verdictPreview } from '../../train/verdicts/data.js';
import { finalEvaluation, shortMetrics, validationMetrics } from '../../train/verdicts/evaluation.js';
import type { VerdictDpoRunConfig } from './config.js';
import { createVerdictDpoRoles, type VerdictDpoRoles, verdictDpoRoles } from './roles.js';
import { dpoStage } from './stage.js';

type VerdictDpoRun = OpenRun<VerdictDpoRunConfig, VerdictData, VerdictDpoRoles>;

/** Pairs are not weighed by class. */
const withSft = (config: VerdictDpoRunConfig) => ({ ...config, sft: { class_weight: 'none' as const } });

/** The run as the evaluations of verdicts see it. */
const judged = (open: VerdictDpoRun): VerdictRun => ({
  ...open,
  config: withSft(open.config),
  microBatchTokens: () => open.microBatchTokens('verdict_dpo'),
});

export const verdictDpo: Method<VerdictDpoRunConfig, VerdictData, VerdictDpoRoles> = {
  data: (config, tokenizer, signal) => verdictData(withSft(config), tokenizer, signal),
  preview: verdictPreview,
  memory: verdictDpoRoles,
  roles: createVerdictDpoRoles,
  stages: (open) => [dpoStage(open, (stop) => validationMetrics(judged(open), open.roles.role, stop))],
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open, { tokens }, signal) {
    const more = { data: { trained_tokens: tokens } };
    const report = await finalEvaluation(judged(open), open.roles.role, {}, more, signal);
    return report && { report, metrics: shortMetrics(report.metrics) };
  },
};
