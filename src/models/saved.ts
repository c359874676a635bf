/** Resolves names of models: the one place that decides what a name means. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileKind } from '../files/kind.js';
import { StepTrainError } from '../native/errors.js';
import { isAdapter, readAdapterConfig } from '../weights/adapter.js';
import { baseDirectory, isPretrained, isShipped, shippedAdapter } from './base.js';
import { type ModelCard, readCard } from './card.js';
import { isGguf } from './gguf.js';

/** The model of a command where none is named. */
export const DEFAULT_MODEL = 'word-problems';

/** The judge of a command where none is named. */
export const DEFAULT_JUDGE = 'word-problems-judge';

export interface NamedModel {
  /** The name that the user gave. */
  readonly name: string;
  /**
   * Kind of the name. `package`: a model of the package. `run`: a directory that `steptrain run` left. `adapter`: a
   * PEFT directory, also `adapter/` of a run. `model`: a directory with weights, also `model/` of a run; a GGUF file.
   * `elsewhere`: nothing here has that name; it may be on the hub.
   */
  readonly kind: 'package' | 'run' | 'adapter' | 'model' | 'elsewhere';
  /** Directory of the adapter, of a run too. */
  readonly adapter?: string;
}

export interface ModelFiles {
  /** Directory of the weights. */
  readonly model: string;
  /** Directory of the PEFT adapter on top of it. */
  readonly adapter: string | undefined;
}

/** The directories of a model whose name is resolved. */
export interface SavedModel extends Omit<NamedModel, 'adapter'> {
  /** Directory of the weights. */
  readonly directory: string;
  /** Directory of the PEFT adapter on top of them. */
  readonly adapter: string | undefined;
  /** `bytes`, or the directory of the tokenizer: the adapter's, where that has one. */
  readonly tokenizer: string;
  /** Card that its run wrote; undefined for a model that no run left. */
  readonly card: ModelCard | undefined;
  /** Dtype in which it was trained; else f32. */
  readonly dtype: 'f32' | 'bf16';
}

/**
 * Finds out what a name means. Damage and a missing base are found only when the model is opened. @throws
 * StepTrainError for a judge that this installation lacks
 */
export function namedModel(name: string): NamedModel {
  if (isShipped(name)) return { name, kind: 'package' };
  const judge = shippedAdapter(name);
  if (judge !== undefined) return { name, kind: 'package', adapter: judge };
  if (isGguf(name)) return { name, kind: 'model' };
  if (fileKind(name) !== 'directory') return { name, kind: 'elsewhere' };
  if (existsSync(join(name, 'config.json'))) return { name, kind: 'model' };
  if (isAdapter(name)) return { name, kind: 'adapter', adapter: name };
  const adapter = join(name, 'adapter');
  const kind = existsSync(join(name, 'config.yaml')) ? 'run' : 'model';
  return { name, kind, ...(isAdapter(adapter) ? { adapter } : {}) };
}

/**
 * The model by its name: a model directory, an adapter (whose base is the one that it was trained on), a run directory (its `adapter/`
 * or `model/`), a GGUF file, or the name of a model of the package. A name that is not here stays as it is.
 *
 * @throws StepTrainError for an adapter whose base is not here, WeightsError for a damaged adapter or card
 */
export function savedModel(name: string): SavedModel {
  const { kind, adapter } = namedModel(name);
  const whole = join(name, 'model');
  const isRun =
    kind !== 'elsewhere' && existsSync(join(whole, 'config.json')) && !existsSync(join(name, 'config.json'));
  const base = adapter !== undefined ? savedBase(adapter) : isRun ? whole : name;
  if (base === undefined)
    throw new StepTrainError(
      'E_ASSET',
      `${adapter} does not say which model it was trained on; name its base`,
    );
  const directory = baseDirectory(base);
  if (adapter !== undefined && !existsSync(join(directory, 'config.json')))
    throw new StepTrainError(
      'E_ASSET',
      `${adapter} was trained on ${base}, which is not here; name its base`,
    );
  return { name, kind, ...withCard({ directory, adapter }) };
}

/** Adds the content of the card to the directories of a model. */
export function withCard({ directory, adapter }: Pick<SavedModel, 'directory' | 'adapter'>) {
  const card = readCard(adapter ?? directory);
  const carries = adapter !== undefined && existsSync(join(adapter, 'tokenizer.json'));
  return {
    ...{ directory, adapter, card, dtype: card?.dtype ?? ('f32' as const) },
    tokenizer: carries ? adapter : directory,
  };
}

/** The base that an adapter names: a directory, a hub id or a name of the package. */
export const savedBase = (adapter: string): string | undefined =>
  readCard(adapter)?.base ?? readAdapterConfig(adapter).baseModel;

/** Whether the name means a model that somebody trained, or an adapter on one, and none of the package's small ones. */
export function standsOnPretrained(name: string): boolean {
  const { adapter } = namedModel(name);
  return isPretrained(adapter === undefined ? name : savedBase(adapter));
}
