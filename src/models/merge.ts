/** Merging: an adapter written into the weights of its base, for programs that do not load adapters. */
import { existsSync } from 'node:fs';
import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { modelConfigJson, modelModules, modelWeights, readModelConfig } from '../architectures/table.js';
import { unfinished } from '../files/unfinished.js';
import { ending } from '../native/ending.js';
import { checkOptions, invalid } from '../native/errors.js';
import { headLogits } from '../ops/head.js';
import type { Device } from '../runtime/device.js';
import { type AdapterReader, isAdapter, openAdapter, readAdapterHead } from '../weights/adapter.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { writeCheckpoint } from '../weights/checkpoint-writer.js';
import { finiteFromF32 } from '../weights/convert.js';
import { type FloatDtype, type FloatName, floatDtype, isFloatDtype } from '../weights/dtype.js';
import { WeightsError } from '../weights/error.js';
import type { LoraModule } from '../weights/lora-plan.js';
import { loadAdapter, withHead } from './adapter.js';
import { checkSequences, raggedBatch } from './batch.js';
import { CARD } from './card.js';
import type { Decoder, Role } from './decoder.js';
import { headOutputs, roleHead } from './heads.js';
import { loadDecoder, openDecoderWeights } from './load.js';
import { addPair } from './merged-adapter.js';
import { foreignBaseOf } from './same-model.js';
import { saveReplyEnd } from './save-reply-end.js';
import { namedModel, savedModel } from './saved.js';

export interface MergeOptions {
  /** Dtype of the output. Default: of each weight as in the base; of weights in fewer bits as of its embedding. */
  readonly dtype?: FloatName | undefined;
  /** Token sequences on which the merged model is compared with the base under its adapter. Default none. */
  readonly check?: readonly ArrayLike<number>[] | undefined;
  /** Larger outputs are split into files of at most this many bytes. */
  readonly maxShardBytes?: number | undefined;
  /** Whether the adapter may be one of another base. Default false: it is refused where the base that it names is here and differs. */
  readonly otherBase?: boolean | undefined;
  /** On abort, incomplete files are removed, and the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const MERGE_OPTIONS: Record<keyof MergeOptions, true> = {
  dtype: true,
  check: true,
  maxShardBytes: true,
  otherBase: true,
  signal: true,
};

export interface MergeReport {
  /** The dtype of the output; `mixed` where its weights have several, as in the base. */
  readonly dtype: FloatName | 'mixed';
  /** Weights to which a product of low rank was added. */
  readonly merged: number;
  /** Weights that the adapter keeps whole (`modules_to_save`). */
  readonly replaced: number;
  /** Largest difference of a logit over all tokens of `check`, both models in f32: the merge error. */
  readonly largestDifference: number | undefined;
  /** The largest |logit| among them, to compare with. */
  readonly largestLogit: number | undefined;
}

/** Files of a model directory that belong to the tokenizer. */
const TOKENIZER_FILES = [
  'added_tokens.json',
  'chat_template.jinja',
  'merges.txt',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer.model',
  'tokenizer_config.json',
  'vocab.json',
];

/**
 * Writes base + adapter as one Hugging Face directory: W + scaling·B·A in f32, rounded once to `dtype`, as PEFT's
 * `merge_and_unload`. One weight at a time is in memory. The tokenizer, and the adapter's `steptrain.json`, come along; `generation_config.json` lists the token that ends replies.
 *
 * @param model the base: a directory, or a model of the package
 * @param run the adapter: its directory, or a run that has one
 * @param output must not hold weights yet
 * @throws WeightsError for an adapter that does not fit, an output that cannot be written, or a weight that is no finite number in `dtype`
 */
export async function mergeAdapter(
  device: Device,
  model: string,
  run: string,
  output: string,
  options: MergeOptions = {},
): Promise<MergeReport> {
  checkOptions('mergeAdapter', options, MERGE_OPTIONS);
  const { check, maxShardBytes, otherBase = false, signal } = options;
  const given = options.dtype === undefined ? undefined : floatDtype('mergeAdapter', options.dtype);
  signal?.throwIfAborted();
  const { directory: base, adapter: own } = savedModel(model);
  if (own !== undefined)
    throw invalid(`mergeAdapter: ${model} has an adapter of its own, ${own}; name the base of ${run}`);
  const adapter = namedModel(run).adapter ?? run;
  const trainedOn = otherBase || !isAdapter(adapter) ? undefined : await foreignBaseOf(adapter, base);
  if (trainedOn !== undefined)
    throw invalid(
      `mergeAdapter: ${run} was trained on ${trainedOn}, and ${model} is another model; name that one, or set otherBase: true`,
    );
  const config = readModelConfig(base);
  if (check) checkSequences('merge', check, config);
  const head = readAdapterHead(adapter);
  const target = head ? withHead(config, head) : config;
  using weights = ending(openDecoderWeights(base, config));
  using reader = openAdapter(adapter, modelModules(target));
  const [first] = modelWeights(config);
  const usual = weights.tensors.get(first?.name as string)?.dtype as FloatDtype;
  const dtypeOf = (name: string): FloatDtype => {
    const own = weights.tensors.get(name)?.dtype;
    return given ?? (own !== undefined && isFloatDtype(own) ? own : usual);
  };
  const pairs = new Map(reader.plan.modules.map((pair) => [`${pair.module}.weight`, pair]));
  const saved = new Map(reader.plan.saved.map(({ weight, name }) => [weight, name]));
  const sources = modelWeights(target).map(({ name, shape }) => ({
    name,
    shape,
    dtype: dtypeOf(name),
    data: async () => {
      signal?.throwIfAborted();
      const whole = saved.get(name);
      const stored = whole ? readStoredF32(reader.file, whole) : readStoredF32(weights, name);
      const pair = whole ? undefined : pairs.get(name);
      const values = pair ? await merged(device, stored, pair, reader) : stored;
      return finiteFromF32(values, dtypeOf(name), { name, width: shape.at(-1) ?? 1 });
    },
  }));
  await wholeOrNone(output, async () => {
    await writeCheckpoint(output, sources, {
      config: modelConfigJson(target),
      ...(maxShardBytes === undefined ? {} : { maxShardBytes }),
    });
    const carries = existsSync(join(adapter, 'tokenizer.json'));
    await copyFiles(TOKENIZER_FILES, carries ? adapter : base, output);
    await copyFiles(['generation_config.json'], base, output);
    await saveReplyEnd(output);
    await copyFiles([CARD], adapter, output);
  });
  const difference = check && (await logitDifference(device, { base, adapter, output }, check, signal));
  const [dtype = usual, ...others] = new Set(sources.map((source) => source.dtype));
  return {
    dtype: others.length > 0 ? 'mixed' : (dtype.toLowerCase() as FloatName),
    merged: pairs.size,
    replaced: saved.size,
    largestDifference: difference?.largestDifference,
    largestLogit: difference?.largestLogit,
  };
}

/** A directory that was not there before goes again if `write` fails, or if the process ends meanwhile. */
async function wholeOrNone(directory: string, write: () => Promise<void>): Promise<void> {
  if (existsSync(directory)) return write();
  const whole = unfinished(directory);
  try {
    await write();
  } catch (error) {
    await rm(directory, { recursive: true, force: true }).catch(() => {});
    throw error;
  } finally {
    whole();
  }
}

/** weight + scaling·B·A, f32 [out, in]. */
async function merged(
  device: Device,
  weight: Float32Array<ArrayBuffer>,
  pair: LoraModule,
  { file }: AdapterReader,
): Promise<Float32Array<ArrayBuffer>> {
  const { aShape, bShape } = pair;
  using total = device.tensor(weight, [bShape[0], aShape[1]]);
  addPair(total, pair, (name) => readStoredF32(file, name));
  return (await total.readFloats()) as Float32Array<ArrayBuffer>;
}

async function copyFiles(names: readonly string[], from: string, to: string): Promise<void> {
  for (const name of names) {
    if (existsSync(join(from, name))) await copyFile(join(from, name), join(to, name));
  }
}

/**
 * Compares a base, under its adapter where it has one, with the written model: both in f32 over the same tokens, one
 * after the other in memory.
 *
 * @param models directories of models and an adapter
 * @param signal aborted: the promise rejects with its reason
 * @throws WeightsError for files that are damaged or do not fit, and for logits that are not finite
 */
export async function logitDifference(
  device: Device,
  models: { readonly base: string; readonly adapter: string | undefined; readonly output: string },
  sequences: readonly ArrayLike<number>[],
  signal?: AbortSignal,
): Promise<{ readonly largestDifference: number; readonly largestLogit: number }> {
  const { base, adapter, output } = models;
  const expected = await withDecoder(device, base, signal, async (decoder) => {
    if (adapter === undefined) return logitsOf(decoder, {}, sequences, signal);
    const role = { adapter: loadAdapter(device, decoder.config, adapter) };
    try {
      return await logitsOf(decoder, role, sequences, signal);
    } finally {
      role.adapter.dispose();
    }
  });
  const found = await withDecoder(device, output, signal, (decoder) =>
    logitsOf(decoder, {}, sequences, signal),
  );
  for (const [directory, outputs] of [[base, expected] as const, [output, found] as const]) {
    if (!outputs.every((logits) => logits.every(Number.isFinite)))
      throw new WeightsError(
        `the logits of ${directory}${directory === base && adapter !== undefined ? ` under ${adapter}` : ''} are not finite, so that nothing can be compared; look for very large weights in it`,
      );
  }
  let largestDifference = 0;
  let largestLogit = 0;
  expected.forEach((logits, s) => {
    logits.forEach((logit, i) => {
      const difference = Math.abs((found[s]?.[i] as number) - logit);
      largestDifference = Math.max(largestDifference, difference);
      largestLogit = Math.max(largestLogit, Math.abs(logit));
    });
  });
  return { largestDifference, largestLogit };
}

async function withDecoder<T>(
  device: Device,
  directory: string,
  signal: AbortSignal | undefined,
  use: (decoder: Decoder) => Promise<T>,
): Promise<T> {
  using decoder = await loadDecoder(device, directory, { dtype: 'f32', signal });
  return await use(decoder);
}

/** Logits of the vocabulary, or outputs of the `score` head, for every token of each sequence. */
async function logitsOf(
  decoder: Decoder,
  role: Role,
  sequences: readonly ArrayLike<number>[],
  signal: AbortSignal | undefined,
): Promise<Float32Array[]> {
  const { device } = decoder;
  const results: Float32Array[] = [];
  for (const ids of sequences) {
    signal?.throwIfAborted();
    const batch = raggedBatch(device, [{ ids }], decoder.config);
    const logits = device.scope(() => {
      const hidden = decoder.forward(batch, role);
      const head = roleHead(decoder, role);
      return head ? headOutputs(hidden, head) : headLogits(hidden, decoder.head(role));
    });
    batch.dispose();
    results.push(await logits.readFloats());
    logits.dispose();
  }
  return results;
}
