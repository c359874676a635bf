import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readStoredF32 } from '../../src/weights/checkpoint.js';
import { fromF32 } from '../../src/weights/convert.js';
import type { FloatDtype } from '../../src/weights/dtype.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { writeSafetensors } from '../../src/weights/safetensors-writer.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { goldenDirectory } from './golden.js';

export interface Change {
  /** Replaces the parsed config.json. */
  readonly config?: (config: Record<string, unknown>) => Record<string, unknown>;
  /** Dtype of every stored weight, or of each by its name. */
  readonly dtype?: FloatDtype | ((name: string) => FloatDtype);
  readonly remove?: readonly string[];
  readonly add?: Readonly<
    Record<string, { readonly shape: readonly number[]; readonly values: readonly number[] }>
  >;
}

/** A copy of a golden model, without its adapter, that is removed after the running test. */
export async function changedModel(name: string, change: Change = {}): Promise<string> {
  const { config = (same) => same, dtype = 'F32', remove = [], add = {} } = change;
  const dtypeOf = typeof dtype === 'function' ? dtype : () => dtype;
  const source = goldenDirectory(name);
  const directory = join(temporaryDirectory(), name);
  mkdirSync(directory, { recursive: true });
  const json = JSON.parse(readFileSync(join(source, 'config.json'), 'utf8')) as Record<string, unknown>;
  writeFileSync(join(directory, 'config.json'), JSON.stringify(config(json)));
  const file = openSafetensors(join(source, 'model.safetensors'));
  const kept = [...file.tensors]
    .filter(([tensor]) => !remove.includes(tensor))
    .map(([tensor, { shape }]) => ({ name: tensor, shape, values: readStoredF32(file, tensor) }));
  const added = Object.entries(add).map(([tensor, { shape, values }]) => ({
    name: tensor,
    shape,
    values: Float32Array.from(values),
  }));
  await writeSafetensors(
    join(directory, 'model.safetensors'),
    [...kept, ...added].map(({ name: tensor, shape, values }) => ({
      name: tensor,
      shape,
      dtype: dtypeOf(tensor),
      data: () => fromF32(values, dtypeOf(tensor)),
    })),
  );
  file.close();
  return directory;
}

/** A copy of a golden adapter under another `adapter_config.json`. */
export function changedAdapter(name: string, keys: Readonly<Record<string, unknown>>): string {
  const source = join(goldenDirectory(name), 'adapter');
  const directory = temporaryDirectory();
  copyFileSync(join(source, 'adapter_model.safetensors'), join(directory, 'adapter_model.safetensors'));
  const json = JSON.parse(readFileSync(join(source, 'adapter_config.json'), 'utf8')) as object;
  writeFileSync(join(directory, 'adapter_config.json'), JSON.stringify({ ...json, ...keys }));
  return directory;
}

/** The same as before training: every lora_B is 0. */
export async function untrainedAdapter(name: string): Promise<string> {
  const directory = changedAdapter(name, {});
  const file = openSafetensors(join(goldenDirectory(name), 'adapter', 'adapter_model.safetensors'));
  const tensors = [...file.tensors].map(([tensor, { shape }]) => ({
    name: tensor,
    shape,
    dtype: 'F32' as const,
    values: readStoredF32(file, tensor).map((value) => (tensor.includes('lora_B') ? 0 : value)),
  }));
  await writeSafetensors(
    join(directory, 'adapter_model.safetensors'),
    tensors.map(({ values, ...tensor }) => ({ ...tensor, data: () => fromF32(values, 'F32') })),
  );
  file.close();
  return directory;
}
