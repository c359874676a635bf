// `method: stepamc`: how it is configured.
import { z } from 'zod';
import { data, prompt } from '../../config/data.js';
import { verdictEvaluation } from '../../config/evaluation.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import type { Conflict, MethodSchema } from '../../config/schema.js';
import { sft } from '../sft/config.js';
import { ablation, baseline, compareWith, constraint, dpo, frn, ppo, sftContinued } from './sections.js';

const schema = z.strictObject({
  method: z.literal('stepamc').describe('The training method.'),
  model,
  lora,
  data,
  prompt,
  sft,
  frn,
  ppo,
  constraint,
  ablation,
  baseline,
  compare_with: compareWith,
  sft_continued: sftContinued,
  dpo,
  run,
  eval: verdictEvaluation,
});

export type StepAmcRunConfig = z.output<typeof schema>;
export type FrnConfig = StepAmcRunConfig['frn'];
export type PpoConfig = StepAmcRunConfig['ppo'];
export type ConstraintConfig = StepAmcRunConfig['constraint'];

export const stepAmcConfig: MethodSchema<StepAmcRunConfig> = {
  schema,
  sections({ sft, frn, ppo, dpo, sft_continued, baseline, compare_with, ablation }) {
    return {
      sft,
      ...(baseline === 'none' ? { ppo } : {}),
      ...(baseline === 'none' && !ablation.no_frn ? { frn } : {}),
      ...(baseline === 'dpo' ? { dpo } : {}),
      ...(baseline === 'sft_continued' || comparesWithContinued({ baseline, compare_with })
        ? { sft_continued }
        : {}),
    };
  },
  conflicts,
};

/** Whether continued SFT trains beside StepAMC; with a baseline, nothing does. */
export function comparesWithContinued({
  baseline,
  compare_with,
}: Pick<StepAmcRunConfig, 'baseline' | 'compare_with'>): boolean {
  return baseline === 'none' && compare_with.includes('sft_continued');
}

function conflicts({ lora, model, constraint, baseline, ablation }: StepAmcRunConfig): Conflict[] {
  const found: Conflict[] = [];
  if (lora === 'none') {
    found.push({
      path: ['lora'],
      message:
        'method "stepamc" keeps all its roles on one frozen base and needs lora: give it a section with r and lora_alpha',
    });
  }
  if (typeof model.base !== 'string') {
    found.push({
      path: ['model', 'base'],
      message:
        'method "stepamc" needs a trained base: name one, or pretrain one with method "pretrain" first',
    });
  }
  const { lo, hi, init, mode } = constraint.alpha;
  if (mode === 'learnable_clamped' && !(lo < init && init < hi)) {
    found.push({
      path: ['constraint', 'alpha', 'init'],
      message: `constraint.alpha.init (${init}) must lie between lo (${lo}) and hi (${hi})`,
    });
  }
  if (baseline !== 'none' && (ablation.no_frn || ablation.no_scpn)) {
    found.push({
      path: ['ablation'],
      message: `ablation switches off parts of StepAMC, and baseline "${baseline}" has none of them; choose one of the two`,
    });
  }
  return found;
}
