import type { Model } from '../../src/api/model.js';
import { completeRunConfig } from '../../src/methods/config.js';
import type { SftRunConfig } from '../../src/methods/sft/config.js';
import { type Adapter, createAdapter } from '../../src/models/adapter.js';
import { loraConfig } from '../../src/train/roles/lora-config.js';
import { random } from '../ops/numbers.js';

/** A trainable adapter whose pairs do something; `lora` are keys of a recipe's section. */
export function someAdapter({ decoder }: Model, lora: object, seed: number): Adapter {
  const section = completeRunConfig({
    method: 'sft',
    lora: { r: 8, lora_alpha: 16, lora_dropout: 0, ...lora },
    data: { source: 'arithmetic' },
  }) as SftRunConfig;
  if (section.lora === 'none') throw new Error('no lora');
  const adapter = createAdapter(decoder.device, decoder.config, loraConfig(section.lora, ''), { seed });
  changeAdapter(adapter, seed);
  return adapter;
}

/** An optimizer step of sorts: other values, another version. */
export function changeAdapter(adapter: Adapter, seed: number, values?: Float32Array): void {
  const buffer = adapter.trainable;
  buffer?.write(values ?? random(buffer.values.size, seed).map((x) => 0.2 * x));
}
