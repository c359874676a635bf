import type { LoraConfig as LoraSection } from '../../config/schema.js';
import { type LoraConfig, PEFT_DEFAULTS } from '../../weights/adapter-config.js';

/** The PEFT configuration of a recipe's `lora` section, for an adapter on `base`. */
export function loraConfig(section: LoraSection, base: string): LoraConfig {
  return {
    ...PEFT_DEFAULTS,
    r: section.r,
    loraAlpha: section.lora_alpha,
    loraDropout: section.lora_dropout,
    useRslora: section.use_rslora,
    targetModules:
      section.target_modules === 'all-linear'
        ? { kind: 'allLinear' }
        : { kind: 'names', names: section.target_modules },
    rankPattern: section.rank_pattern,
    alphaPattern: section.alpha_pattern,
    modulesToSave: section.modules_to_save,
    taskType: 'CAUSAL_LM',
    baseModel: base,
  };
}
