import type { TrainableParameters } from '../../src/autograd/parameters.js';
import { Tape } from '../../src/autograd/tape.js';
import { type Adapter, createAdapter } from '../../src/models/adapter.js';
import type { Decoder } from '../../src/models/decoder.js';
import { loadDecoder } from '../../src/models/load.js';
import { nll } from '../../src/objectives/nll.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { type ScoredRows, scoreRows } from '../../src/sequences/forward.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import { goldenDirectory } from '../models/golden.js';

export interface LoraDecoder {
  readonly decoder: Decoder;
  readonly adapter: Adapter;
  readonly parameters: TrainableParameters;
  /** Forward and backward of the mean loss; gradients are added into the parameters. */
  backward(items: readonly ScoredRows[], step: number): Tensor;
  dispose(): void;
}

/** The tiny golden qwen2 with a new adapter of rank 4 on every projection; B is not zero, so that A has a gradient. */
export async function loraDecoder(
  device: Device,
  options: { readonly gradientCheckpointing?: boolean; readonly dropout?: number } = {},
): Promise<LoraDecoder> {
  const { gradientCheckpointing = false, dropout = 0 } = options;
  const decoder = await loadDecoder(device, goldenDirectory('qwen2'), {
    dtype: 'f32',
    gradientCheckpointing,
  });
  const config = parseAdapterConfig(
    {
      peft_type: 'LORA',
      r: 4,
      lora_alpha: 8,
      lora_dropout: dropout,
      target_modules: 'all-linear',
      init_lora_weights: false,
    },
    'test',
  );
  const adapter = createAdapter(device, decoder.config, config, { seed: 1 });
  const parameters = adapter.trainable as TrainableParameters;
  return {
    decoder,
    adapter,
    parameters,
    backward(items, step) {
      const targets = items.reduce((sum, { rows }) => sum + rows.length, 0);
      const tape = new Tape(device);
      const loss = device.scope(() =>
        tape.run(() => {
          const { logprobs } = scoreRows(decoder, { adapter, dropout: { seed: 5, step } }, items);
          return nll(logprobs, device.tensor(new Float32Array(targets).fill(1 / targets)));
        }),
      );
      tape.backward([[loss, 1]]);
      tape.dispose();
      return loss;
    },
    dispose() {
      adapter.dispose();
      decoder.dispose();
    },
  };
}

/** A sequence in which every token is predicted from those before it. */
export function everyToken(ids: readonly number[], rowId = 0): ScoredRows {
  return {
    sequence: { ids, positions: ids.map((_, position) => position), branch: undefined, rowId },
    rows: ids.slice(1).map((token, row) => ({ row, token })),
  };
}
