/** Where the files of a model lie: a base, an adapter with its base, or what a run trained. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { StepTrainError } from '../native/errors.js';
import { isAdapter, readAdapterConfig } from '../weights/adapter.js';
import { baseDirectory, isShipped, shippedAdapter } from './base.js';
import { readCard } from './card.js';
import { isGguf } from './gguf.js';

export interface ModelFiles {
  /** Directory of the weights. */
  readonly model: string;
  /** Directory of the PEFT adapter on top of it. */
  readonly adapter: string | undefined;
}

/**
 * The files of a model by its name: a model directory, an adapter (whose base is the one that it was trained on), a run directory
 * (its `adapter/` or `model/`), a GGUF file, or the name of a model of the package.
 *
 * @throws StepTrainError for an adapter whose base is not here, WeightsError for a damaged adapter
 */
export function modelFiles(name: string): ModelFiles {
  if (isShipped(name) || isGguf(name)) return { model: baseDirectory(name), adapter: undefined };
  const judge = shippedAdapter(name);
  if (judge !== undefined) return { model: baseOfAdapter(judge), adapter: judge };
  if (!existsSync(join(name, 'config.json'))) {
    if (isAdapter(name)) return { model: baseOfAdapter(name), adapter: name };
    const adapter = join(name, 'adapter');
    if (isAdapter(adapter)) return { model: baseOfAdapter(adapter), adapter };
    const model = join(name, 'model');
    if (existsSync(join(model, 'config.json'))) return { model, adapter: undefined };
  }
  return { model: name, adapter: undefined };
}

function baseOfAdapter(adapter: string): string {
  const base = readCard(adapter)?.base ?? readAdapterConfig(adapter).baseModel;
  if (base === undefined)
    throw new StepTrainError(
      'E_ASSET',
      `${adapter} does not say which model it was trained on; name its base`,
    );
  if (isShipped(base) || isGguf(base)) return baseDirectory(base);
  if (existsSync(join(base, 'config.json'))) return base;
  throw new StepTrainError('E_ASSET', `${adapter} was trained on ${base}, which is not here; name its base`);
}
