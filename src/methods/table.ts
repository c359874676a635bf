/** The methods. A new one is a folder here and a row in this table. */

import type { z } from 'zod';
import type { OptimizerInput } from '../config/optimizer.js';
import type { MethodSchema } from '../config/schema.js';
import type { Method } from '../train/method.js';
import { distillConfig } from './distill/config.js';
import { dpo } from './offline/dpo.js';
import { fullStepDpo } from './offline/full-step-dpo.js';
import { implicitPrm } from './offline/implicit-prm.js';
import { kto } from './offline/kto.js';
import { orpo } from './offline/orpo.js';
import { rft } from './offline/rft.js';
import { simpo } from './offline/simpo.js';
import { solutionSft } from './offline/solution-sft.js';
import { stepDpo } from './offline/step-dpo.js';
import { stepKto } from './offline/step-kto.js';
import type { Algorithm } from './ppo/algorithms.js';
import { ppoConfig } from './ppo/config.js';
import { pretrainConfig } from './pretrain/config.js';
import { rewardConfig } from './reward/config.js';
import { s3cConfig } from './s3c/config.js';
import { sftConfig } from './sft/config.js';
import { stepAmcConfig } from './stepamc/config.js';
import { verdictDpoConfig } from './verdict-dpo/config.js';

/** `load` imports the training code, which reading a recipe does not need. */
export const methods = {
  sft: { ...sftConfig, load: async () => (await import('./sft/method.js')).sft },
  stepamc: { ...stepAmcConfig, load: async () => (await import('./stepamc/method.js')).stepAmc },
  verdict_dpo: {
    ...verdictDpoConfig,
    load: async () => (await import('./verdict-dpo/method.js')).verdictDpo,
  },
  s3c: { ...s3cConfig, load: async () => (await import('./s3c/method.js')).s3c },
  reward: { ...rewardConfig, load: async () => (await import('./reward/method.js')).reward },
  ppo: { ...ppoConfig, load: async () => (await import('./ppo/method.js')).ppo },
  distill: { ...distillConfig, load: async () => (await import('./distill/method.js')).distill },
  pretrain: { ...pretrainConfig, load: async () => (await import('./pretrain/method.js')).pretrain },
  kto,
  dpo,
  step_dpo: stepDpo,
  full_step_dpo: fullStepDpo,
  simpo,
  orpo,
  solution_sft: solutionSft,
  rft,
  implicit_prm: implicitPrm,
  step_kto: stepKto,
} as const;

export type MethodName = keyof typeof methods;

/** The complete configuration of a run; `method` determines its sections. */
export type RunConfig = { [M in MethodName]: z.output<(typeof methods)[M]['schema']> }[MethodName];

export type InputOf<M extends MethodName> = z.input<(typeof methods)[M]['schema']>;

/** A configuration as a recipe or a program writes it: `method` decides which sections there are, and defaults may be left out. */
export type RunConfigInput = (
  | { [M in MethodName]: InputOf<M> }[MethodName]
  | (Omit<InputOf<'ppo'>, 'method'> & { method: Algorithm })
  | ({ readonly extends: string; readonly method?: undefined } & {
      readonly [Section in Exclude<{ [M in MethodName]: keyof InputOf<M> }[MethodName], 'method'>]?:
        | Readonly<Record<string, unknown>>
        | undefined;
    })
) & {
  /** A recipe of the package by its name, such as `my_steps`, or a file, which may name the method; the keys given here replace its own. */
  readonly extends?: string | undefined;
  /** The settings that its training stages share. */
  readonly optimizer?: OptimizerInput | undefined;
};

interface Row extends MethodSchema<RunConfig> {
  load(): Promise<Method<RunConfig>>;
}

/** The row of the method that `config` names. */
export function methodOf(config: Pick<RunConfig, 'method'>): Row {
  return methods[config.method];
}
