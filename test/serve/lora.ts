import type { LoraConfig } from '../../src/weights/adapter-config.js';

/** A small adapter. */
export const lora: LoraConfig = {
  r: 2,
  loraAlpha: 4,
  loraDropout: 0,
  useRslora: false,
  targetModules: { kind: 'names', names: ['q_proj', 'v_proj'] },
  excludeModules: undefined,
  layersToTransform: undefined,
  layersPattern: undefined,
  rankPattern: {},
  alphaPattern: {},
  initLoraWeights: true,
  modulesToSave: [],
  taskType: 'CAUSAL_LM',
  baseModel: undefined,
};
