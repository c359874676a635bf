/** PEFT adapter directories: `adapter_config.json` and `adapter_model.safetensors`. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { makeDirectories } from '../files/directory.js';
import { systemReason } from '../files/error.js';
import { ending } from '../native/ending.js';
import { typedCommand } from '../native/typed-command.js';
import { adapterConfigJson, type LoraConfig, parseAdapterConfig } from './adapter-config.js';
import { matchWeights } from './checkpoint.js';
import { writeJson } from './checkpoint-writer.js';
import { WeightsError } from './error.js';
import { withExpertNames } from './joint-experts.js';
import { readJsonObject } from './json.js';
import { isOfMixture, type LoraModule, type LoraPlan, loraPlan, refuseMisread } from './lora-plan.js';
import { type Initializer, type ModuleSpec, ofExperts } from './modules.js';
import { byPattern, endsWithAny } from './name-pattern.js';
import { openSafetensors } from './safetensors.js';
import { type TensorData, type TensorSource, writeSafetensors } from './safetensors-writer.js';
import { openTorch } from './torch/file.js';
import type { WeightsFile } from './weights-file.js';

const CONFIG_FILE = 'adapter_config.json';
const WEIGHTS_FILE = 'adapter_model.safetensors';

/** An adapter that fits a model: every planned tensor is in `file` with its shape, and nothing else is. */
export interface AdapterReader extends Disposable {
  readonly directory: string;
  readonly config: LoraConfig;
  readonly plan: LoraPlan;
  /** Closed as the reader is disposed. */
  readonly file: WeightsFile;
}

/** The head that the weights of an adapter bring along. */
export interface AdapterHead {
  readonly kind: 'sequence' | 'token';
  readonly numLabels: number;
  readonly bias: boolean;
  /** Names of the classes; absent: the base's, if it has as many. */
  readonly labels?: readonly string[] | undefined;
}

/** The files that say what an adapter computes. */
export function adapterFiles(directory: string): string[] {
  return [join(directory, CONFIG_FILE), adapterWeights(directory)];
}

/** The path of the weights: safetensors, or the file of torch.save where there is no other. */
export function adapterWeights(directory: string): string {
  const [path, older] = [join(directory, WEIGHTS_FILE), join(directory, 'adapter_model.bin')];
  return !existsSync(path) && existsSync(older) ? older : path;
}

/** @throws WeightsError for a file that is damaged or not there */
export function openAdapterWeights(directory: string): WeightsFile {
  const path = adapterWeights(directory);
  const file = path.endsWith('.bin') ? openTorch(path) : openSafetensors(path);
  const config = isAdapter(directory) ? readAdapterConfig(directory) : undefined;
  if (!config?.targetParameters) return file;
  const { r, rankPattern, targetParameters } = config;
  const isTarget = endsWithAny(targetParameters);
  try {
    const rank = (parameter: string) =>
      isTarget(parameter)
        ? byPattern(rankPattern, [parameter], r, `${directory}: rank_pattern`)[0]
        : undefined;
    return withExpertNames(file, rank);
  } catch (error) {
    file.close();
    throw error;
  }
}

/** Whether the directory holds an adapter. */
export function isAdapter(directory: string): boolean {
  return existsSync(join(directory, CONFIG_FILE));
}

/**
 * Reads an adapter's configuration.
 *
 * @throws WeightsError where the directory holds no adapter, or a damaged one
 */
export function readAdapterConfig(directory: string): LoraConfig {
  const path = join(directory, CONFIG_FILE);
  if (!isAdapter(directory)) throw new WeightsError(noAdapter(directory));
  return parseAdapterConfig(readJsonObject(path), path);
}

/** Why a directory is no adapter, as a sentence. */
export function noAdapter(directory: string): string {
  if (!existsSync(directory)) return `there is no ${directory}`;
  if (!existsSync(join(directory, 'config.yaml')))
    return `${directory} is no adapter: it has no ${CONFIG_FILE}`;
  const own = join(directory, 'adapter');
  if (isAdapter(own)) return `${directory} is a run; name its adapter, ${own}`;
  return (
    `${directory} is a run without an adapter: it trained every weight, or its training has not ended; ` +
    `continue with: ${typedCommand(`run --resume ${directory}`)}`
  );
}

/**
 * Opens an adapter for a model.
 *
 * @param modules of the base model with the head that the adapter is for, see `modelModules` and {@link readAdapterHead}
 * @throws WeightsError naming the key, or the missing and unexpected tensors
 */
export function openAdapter(directory: string, modules: readonly ModuleSpec[]): AdapterReader {
  const config = readAdapterConfig(directory);
  // The tensors in the file decide; an entry of target_modules that fits nothing took part in nothing.
  const plan = loraPlan(config, modules, { where: join(directory, CONFIG_FILE), strictTargets: false });
  const file = openAdapterWeights(directory);
  try {
    refuseOtherModel(directory, config, file, modules);
    matchWeights({ directory, tensors: file.tensors, read: file.read }, adapterTensors(plan));
  } catch (error) {
    file.close();
    throw error;
  }
  return { directory, config, plan, file, [Symbol.dispose]: () => file.close() };
}

const PAIR = /^base_model\.model\.(.+)\.lora_([AB])\.weight$/;

/**
 * Refuses an adapter of another model by its shape, in one sentence instead of the names of all its tensors.
 *
 * @throws WeightsError for more layers, or layers of another width, than the model has
 */
function refuseOtherModel(
  directory: string,
  { baseModel }: LoraConfig,
  { tensors }: WeightsFile,
  modules: readonly ModuleSpec[],
): void {
  const fail = (difference: string): never => {
    const base = baseModel === undefined ? '' : ` (it was trained on ${baseModel})`;
    throw new WeightsError(`${directory} is an adapter of another model${base}: ${difference}`);
  };
  const pairs = [...tensors].flatMap(([name, { shape }]) => {
    const [, module, side] = PAIR.exec(name) ?? [];
    return module === undefined ? [] : [{ module, side, shape }];
  });
  const has = layersOf(modules.map(({ name }) => name));
  const needs = layersOf(pairs.map(({ module }) => module));
  if (has > 0 && needs > has) fail(`it changes layer ${needs}, and this one has ${has}`);
  const shapes = new Map(modules.map(({ name, shape }) => [name, shape]));
  for (const { module, side, shape } of pairs) {
    const [out, input] = shapes.get(module) ?? [];
    // In a pair, A is [rank, inputs] and B [outputs, rank].
    const [expected, found, what] = side === 'A' ? [input, shape[1], 'inputs'] : [out, shape[0], 'outputs'];
    if (expected !== undefined && found !== undefined && expected !== found)
      fail(`its ${module} has ${found} ${what}, and that of this one ${expected}`);
  }
}

/** One more than the largest number of a layer in names such as `model.layers.3.mlp.up_proj`. */
function layersOf(names: readonly string[]): number {
  return names.reduce((most, name) => Math.max(most, 1 + Number(/\.(\d+)\./.exec(name)?.[1] ?? -1)), 0);
}

/**
 * The classification head that an adapter was trained with: its base model's `config.json` does not tell.
 *
 * @param module the name of the head, see `Classifier`
 * @returns undefined for an adapter without one
 */
export function readAdapterHead(directory: string, module = 'score'): AdapterHead | undefined {
  const { taskType, modulesToSave } = readAdapterConfig(directory);
  if ((taskType !== 'SEQ_CLS' && taskType !== 'TOKEN_CLS') || !modulesToSave.includes(module))
    return undefined;
  using file = ending(openAdapterWeights(directory));
  const score = file.tensors.get(`base_model.model.${module}.weight`);
  if (score === undefined || score.shape.length !== 2) {
    throw new WeightsError(
      `${directory}: expected a matrix 'base_model.model.${module}.weight' for task_type ${taskType}, found none`,
    );
  }
  const bias = file.tensors.has(`base_model.model.${module}.bias`);
  return { kind: taskType === 'SEQ_CLS' ? 'sequence' : 'token', numLabels: score.shape[0]!, bias };
}

/** The modules that have a pair in the file of an adapter, whatever its configuration says. */
export function adaptedModules(directory: string): string[] {
  using file = ending(openAdapterWeights(directory));
  return [...file.tensors.keys()].flatMap((name) => {
    const [, module = '', side] = PAIR.exec(name) ?? [];
    return side === 'A' ? [module] : [];
  });
}

/** A tensor of `adapter_model.safetensors`. */
export interface AdapterTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly init: Initializer;
}

/** The tensors of pairs, in the order of a buffer; experts with joint weights have all A first, then all B. */
export function pairTensors({ modules }: Pick<LoraPlan, 'modules'>): readonly AdapterTensor[] {
  const joint = ofExperts(modules);
  return modules.flatMap((module) => {
    if (!module.expert) return [aOf(module), bOf(module)];
    const experts = joint.get(module.expert.of) ?? [];
    return experts[0] === module ? [...experts.map(aOf), ...experts.map(bOf)] : [];
  });
}

const aOf = ({ aName: name, aShape: shape, aInit: init }: LoraModule) => ({ name, shape, init });
const bOf = ({ bName: name, bShape: shape, bInit: init }: LoraModule) => ({ name, shape, init });

/** Every tensor of `adapter_model.safetensors`. */
export function adapterTensors(plan: LoraPlan): readonly AdapterTensor[] {
  return [...pairTensors(plan), ...plan.saved];
}

/**
 * Writes an adapter that PEFT loads, each file atomically, the configuration last. An adapter that is already there is replaced.
 * PEFT refuses dropout on experts, so that the file says 0 there.
 *
 * @param data the bytes of a tensor by its name in the file, in f32; asked for one at a time
 * @throws WeightsError for pairs of experts that PEFT would misread, see {@link refuseMisread}
 */
export async function writeAdapter(
  directory: string,
  { config, plan }: { readonly config: LoraConfig; readonly plan: LoraPlan },
  data: (name: string) => TensorData,
): Promise<void> {
  refuseMisread(config, plan, directory);
  try {
    await makeDirectories(directory);
  } catch (error) {
    throw new WeightsError(`cannot write ${directory}: ${systemReason(error)}`, { cause: error });
  }
  const sources = adapterTensors(plan).map(
    ({ name, shape }): TensorSource => ({ name, shape, dtype: 'F32', data: () => data(name) }),
  );
  await writeSafetensors(join(directory, WEIGHTS_FILE), sources, { format: 'pt' });
  const targets = [...new Set(plan.modules.map(({ module }) => module.split('.').at(-1)!))].sort();
  const dropout = plan.mixture && plan.modules.some(isOfMixture) ? { loraDropout: 0 } : {};
  await writeJson(join(directory, CONFIG_FILE), adapterConfigJson({ ...config, ...dropout }, targets));
}
