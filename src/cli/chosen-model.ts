// The model of a command: one by name or path, or the result of a run.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel, type Model } from '../api/model.js';
import { ofRun, type RunModel } from '../methods/run-model.js';
import { baseDirectory } from '../models/base.js';
import { modelFiles } from '../models/saved.js';
import { refuseClassifier } from '../models/writes-text.js';
import { resolveModel } from '../run/paths.js';
import { DEFAULT_MODEL } from '../run/resolve-saved.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import { type Device, openDevice } from '../runtime/device.js';
import { loadTokenizer } from '../tokenizer/load.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { isAdapter, noAdapter } from '../weights/adapter.js';
import { chosenDevice } from './device.js';
import { UsageError } from './error.js';
import { type ModelArguments, withModel } from './model-options.js';
import { checkOwnBase } from './other-base.js';

export interface ChosenModel {
  readonly device: Device;
  readonly model: Model;
  readonly tokenizer: Tokenizer;
  /** Tokens that end a reply: the end-of-text tokens of model and tokenizer. */
  readonly eosTokenIds: readonly number[];
}

/** Loads it. The caller disposes model and device. */
export async function openChosenModel(given: ModelArguments): Promise<ChosenModel> {
  const args = withModel(given);
  const name = await chosenDevice(args.device);
  const { directory, tokenizer, ...options } =
    args.run === undefined ? await named(args) : await ofRun(args.run);
  const device = openDevice(name);
  try {
    const model = await loadModel(device, directory, {
      ...options,
      ...(args.dtype ? { dtype: args.dtype } : {}),
    });
    const own = tokenizer.eosId === undefined ? [] : [tokenizer.eosId];
    const { vocabSize } = model.decoder.config;
    const eosTokenIds = [...new Set([...model.eosTokenIds, ...own])].filter((id) => id < vocabSize);
    return { device, model, tokenizer, eosTokenIds };
  } catch (error) {
    device.dispose();
    throw error;
  }
}

/** An adapter or a run, named as the model, brings its base along. */
async function named({
  model,
  adapter: given,
  tokenizer = 'base',
  'other-base': otherBase = false,
}: ModelArguments): Promise<RunModel> {
  const adapter = given === undefined ? undefined : namedAdapter(given);
  const files = modelFiles(model ?? adapter ?? DEFAULT_MODEL);
  const found = await resolveModel(
    { base: files.model, tokenizer },
    ([, key]) => `--${key !== 'base' ? String(key) : model === undefined ? 'adapter' : 'model'}`,
  );
  const onTop = model === undefined ? files.adapter : (adapter ?? files.adapter);
  const directory = baseDirectory(found.base);
  if (onTop !== undefined) refuseClassifier(onTop);
  if (model !== undefined && adapter !== undefined && !otherBase)
    await checkOwnBase({ adapter, base: model, directory }, 'use it');
  const carries = tokenizer === 'base' && onTop !== undefined && existsSync(join(onTop, 'tokenizer.json'));
  return {
    directory,
    adapter: onTop,
    tokenizer: carries ? await loadTokenizer(onTop) : await configuredTokenizer(found),
  };
}

/** Of a run its adapter. */
function namedAdapter(path: string): string {
  for (const found of [path, join(path, 'adapter')]) if (isAdapter(found)) return found;
  const from = existsSync(path) ? '' : ` (looked for from ${process.cwd()})`;
  throw new UsageError(`--adapter: ${noAdapter(path)}${from}`);
}
