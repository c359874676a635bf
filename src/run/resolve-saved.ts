// What a name of a model means: the one place that every command asks.
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isShipped, judgeFor, shippedAdapter } from '../models/base.js';
import { isGguf } from '../models/gguf.js';
import { modelFiles } from '../models/saved.js';
import { isAdapter } from '../weights/adapter.js';

/** The model of a command where none is named. */
export const DEFAULT_MODEL = 'word-problems';

export interface SavedModel {
  /** As it was named. */
  readonly name: string;
  /**
   * `package`: a model of the package. `run`: what `steptrain run` left, whole. `adapter`: a PEFT directory, also `adapter/` of a run.
   * `model`: a directory with weights, also `model/` of a run; a GGUF file. `elsewhere`: nothing here has that name; it may be on the hub.
   */
  readonly kind: 'package' | 'run' | 'adapter' | 'model' | 'elsewhere';
  /** Directory of the adapter, of a run too. */
  readonly adapter?: string;
}

/** What is damaged or lacks its base is told when it is opened. @throws StepTrainError for a judge that this installation lacks */
export function resolveSaved(name: string): SavedModel {
  if (isShipped(name)) return { name, kind: 'package' };
  const judge = shippedAdapter(name);
  if (judge !== undefined) return { name, kind: 'package', adapter: judge };
  if (isGguf(name)) return { name, kind: 'model' };
  if (!isDirectory(name)) return { name, kind: 'elsewhere' };
  if (existsSync(join(name, 'config.json'))) return { name, kind: 'model' };
  if (isAdapter(name)) return { name, kind: 'adapter', adapter: name };
  if (!existsSync(join(name, 'config.yaml'))) return { name, kind: 'model', ...adapterIn(name) };
  return { name, kind: 'run', ...adapterIn(name) };
}

/** The same where a judge is meant: a model of the package stands for the judge that the package has on it. */
export function resolveJudge(name: string): SavedModel {
  return resolveSaved(judgeFor(name));
}

const adapterIn = (name: string) => {
  const adapter = join(name, 'adapter');
  return isAdapter(adapter) ? { adapter } : {};
};

/** The base that an adapter, or a run with one, was trained on. @throws StepTrainError where it is not here */
export function baseOf({ name }: SavedModel): string {
  return modelFiles(name).model;
}

const isDirectory = (name: string) => statSync(name, { throwIfNoEntry: false })?.isDirectory() === true;
