import { type LoraConfig, PEFT_DEFAULTS } from '../../src/weights/adapter-config.js';

/** A small adapter. */
export const lora: LoraConfig = {
  ...PEFT_DEFAULTS,
  r: 2,
  loraAlpha: 4,
  targetModules: { kind: 'names', names: ['q_proj', 'v_proj'] },
  taskType: 'CAUSAL_LM',
};
