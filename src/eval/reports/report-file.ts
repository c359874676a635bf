// Reads eval.json.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../files/json-file.js';
import { typedCommand } from '../../native/typed-command.js';
import { RunError } from '../../run/error.js';
import { likelihoodWeights } from '../../scoring/settings.js';
import { readAs } from '../read-as.js';
import type { StepErrorMetrics } from '../step-errors.js';
import type { EvalReport, VerdictReport } from './eval-report.js';

const fraction = z.number().min(0).max(1);
const count = z.number().min(0);

const confusionMetrics = z.looseObject({
  n: count,
  accuracy: fraction,
  acc_pos: fraction,
  acc_neg: fraction,
  balanced_accuracy: fraction,
  f1_pos: fraction,
  f1_neg: fraction,
  f1_macro: fraction,
  f1_micro: fraction,
  f1_weighted: fraction,
  f1_harmonic: fraction,
});
const metrics = confusionMetrics.extend({ invalid: count.exactOptional(), auc: fraction.exactOptional() });

const intervals = z.strictObject({
  confidence: fraction,
  resamples: count,
  problems: count,
  seed: count,
  metrics: z.record(z.string(), z.tuple([fraction, fraction])),
});

const calibration = z.strictObject({
  ece: fraction,
  brier: fraction,
  bins: z.array(
    z.strictObject({
      from: fraction,
      to: fraction,
      n: count,
      probability: fraction,
      positive_share: fraction,
    }),
  ),
});

const choice = z.strictObject({ threshold: fraction, validation: fraction, metrics });
const thresholdSweep = z.strictObject({
  table: z.array(z.strictObject({ threshold: fraction, metrics })),
  chosen: z.strictObject({ f1_macro: choice, balanced_accuracy: choice }).exactOptional(),
});

const processbench = z.strictObject({
  subsets: z.record(
    z.string(),
    z.strictObject({
      n: count,
      err_acc: fraction.exactOptional(),
      cor_acc: fraction.exactOptional(),
      f1: fraction.exactOptional(),
    }),
  ),
  average_f1: fraction.exactOptional(),
});

const baselines = z
  .object({ always_positive: metrics, always_negative: metrics, majority: metrics, random: metrics })
  .catchall(metrics);

const network = z.strictObject({
  metrics,
  pair_accuracy: fraction,
  threshold: z.number().exactOptional(),
  calibration: calibration.exactOptional(),
});

const differences = z.strictObject({
  steps: z.enum(['all', 'unseen']),
  n: count,
  to: z.record(
    z.string(),
    z.strictObject({ difference: z.number().min(-1).max(1), interval: z.tuple([z.number(), z.number()]) }),
  ),
});

const errors = z.record(
  z.string(),
  z.strictObject({
    n: count,
    told: fraction,
    unseen: z.strictObject({ n: count, told: fraction }).exactOptional(),
    auc: fraction.exactOptional(),
  } satisfies Record<keyof StepErrorMetrics, z.ZodType>),
);

/** A part of the report that is not here does not compile: a run's own eval.json must be readable. */
const verdictReport = z.strictObject({
  method: z.string(),
  data: z.record(z.string(), z.unknown()),
  metrics,
  metrics_validation: metrics.exactOptional(),
  unit: z.enum(['steps', 'solutions']).exactOptional(),
  outcomes: z
    .strictObject({ metrics, length: metrics, calibration: calibration.exactOptional() })
    .exactOptional(),
  metrics_seen: metrics.exactOptional(),
  metrics_unseen: metrics.exactOptional(),
  baselines,
  baselines_unseen: baselines.exactOptional(),
  intervals_unseen: intervals.exactOptional(),
  reward_network: z.strictObject({ validation: network, test: network }).exactOptional(),
  differences: differences.exactOptional(),
  intervals: intervals.exactOptional(),
  calibration: calibration.exactOptional(),
  threshold_sweep: thresholdSweep.exactOptional(),
  threshold: z.number().exactOptional(),
  sure: z
    .strictObject({ least: fraction, share: fraction, metrics: metrics.exactOptional() })
    .exactOptional(),
  processbench: processbench.exactOptional(),
  errors: errors.exactOptional(),
  groups: z.record(z.string(), metrics.extend({ positives: count })).exactOptional(),
  warnings: z.array(z.string()).exactOptional(),
} satisfies Record<keyof VerdictReport, z.ZodType>);

const reportSchema = verdictReport.extend({
  likelihood: z
    .strictObject({ weights: likelihoodWeights, kept: z.literal(false).exactOptional() })
    .exactOptional(),
  words: verdictReport.exactOptional(),
} satisfies Record<Exclude<keyof EvalReport, keyof VerdictReport>, z.ZodType>);

/** Reads eval.json. Throws one sentence where the file is missing or holds something else. */
export async function readEvalReport(path: string): Promise<EvalReport> {
  return readAs(reportSchema, await readJson(path), `${path} is not an evaluation of steptrain`);
}

/** The evaluation of a run. Throws one sentence also where the run has none yet. */
export async function readRunEvaluation(directory: string): Promise<EvalReport> {
  const path = join(directory, 'eval.json');
  if (!existsSync(path) && existsSync(join(directory, 'config.yaml'))) {
    throw new RunError(
      `${directory} holds no eval.json: the run has not ended, or its method evaluates nothing of the kind; continue with: ` +
        `${typedCommand(`run --resume ${directory}`)}; a judge can be measured as it is now: ${typedCommand(`eval correction ${directory}`)}`,
    );
  }
  if (!existsSync(path))
    throw new RunError(
      `${existsSync(directory) ? `${directory} holds no eval.json` : `there is no ${directory}`}; name the directory of a finished run, or an --output of eval correction or solve`,
    );
  return readEvalReport(path);
}
