import type { Device } from '../../../src/entries/index.js';
import { createStepAmcRoles, type StepAmcRoles } from '../../../src/methods/stepamc/roles.js';

/** The roles of StepAMC on the base in the package, with adapters of rank 4. */
export const embeddedRoles = (device: Device): Promise<StepAmcRoles> =>
  createStepAmcRoles(device, {
    model: { base: 'embedded', tokenizer: 'base', dtype: 'f32', quantize: 'keep', router_aux_loss_coef: 0 },
    lora: {
      r: 4,
      lora_alpha: 8,
      lora_dropout: 0,
      target_modules: 'all-linear',
      use_rslora: false,
      rank_pattern: {},
      alpha_pattern: {},
      modules_to_save: [],
    },
    seed: 3,
    gradientCheckpointing: false,
  });
