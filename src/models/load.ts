/** Loads a decoder from a Hugging Face directory onto a device. */
import type { ModelConfig } from '../architectures/config.js';
import { matchOptions, modelWeights, readModelConfig } from '../architectures/table.js';
import type { Parameter } from '../autograd/parameters.js';
import { type ParameterSpec, TrainableParameters } from '../autograd/parameters.js';
import { ending } from '../native/ending.js';
import { StepTrainError } from '../native/errors.js';
import { expertWeight, stackWeight } from '../ops/experts.js';
import { packQuantized, packWeight, quantizeWeight } from '../ops/gemm.js';
import type { Device } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import { type CheckpointReader, matchWeights, openCheckpoint, readStoredF32 } from '../weights/checkpoint.js';
import { countInexact, nonFiniteIndex, toF32 } from '../weights/convert.js';
import type { FloatDtype } from '../weights/dtype.js';
import { WeightsError } from '../weights/error.js';
import { withFusedExperts } from '../weights/fused-experts.js';
import { type ExpertPlace, ofExperts, type WeightSpec } from '../weights/modules.js';
import { type QuantizedWeight, quantizedBytes } from '../weights/quantized/format.js';
import { withTrunkNames } from '../weights/trunk.js';
import { Decoder, type Rounding } from './decoder.js';
import { addPair, type MergedAdapter, readMergedAdapter } from './merged-adapter.js';
import { type ChosenFormat, chosenFormats, type Quantize } from './quantize.js';
import { type LayerHolders, ShardedLayers } from './sharded-layers.js';

export interface LoadOptions {
  /** Dtype of activations and frozen weights. Default bf16. */
  readonly dtype?: 'f32' | 'bf16';
  readonly gradientCheckpointing?: boolean;
  /** Coefficient of the loss that balances experts, while training. Default 0. */
  readonly routerAuxLossCoef?: number | undefined;
  /** The weights that stay in 4 or 8 bits. Default `keep`: those that are stored so, in their format. */
  readonly quantize?: Quantize | undefined;
  /**
   * Directory of an adapter that is added to the weights, in f32, before they are rounded to `dtype`. Adapters that `createAdapterOn`
   * makes on the decoder are saved as one with it, for the base without it.
   */
  readonly merged?: string | undefined;
  /** The processes that hold the matrices of the layers together, which asks for `gradientCheckpointing`. */
  readonly holders?: LayerHolders | undefined;
  /** On abort, everything loaded so far is freed, and the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Opens a directory's weights, checked against its config.json. The caller closes the reader. */
export function openDecoderWeights(directory: string, config: ModelConfig): CheckpointReader {
  const stored = openCheckpoint(directory);
  try {
    const expected = modelWeights(config);
    const named = withTrunkNames(
      stored,
      expected.map(({ name }) => name),
    );
    const reader = withFusedExperts(named, expected);
    matchWeights(reader, expected, matchOptions(config));
    return reader;
  } catch (error) {
    stored.close();
    throw error;
  }
}

/** Loads a decoder with frozen weights: linear weights packed as `dtype`, or quantised; norms, biases and `score` in f32. */
export async function loadDecoder(
  device: Device,
  directory: string,
  { signal, merged: under, holders, ...options }: LoadOptions = {},
): Promise<Decoder> {
  signal?.throwIfAborted();
  const config = readModelConfig(directory);
  const merged = under === undefined ? undefined : readMergedAdapter(config, under);
  const reader = openDecoderWeights(directory, config);
  const { dtype = 'bf16', quantize = 'keep' } = options;
  const weights = new Map<string, Parameter>();
  let chosen: ReadonlyMap<string, ChosenFormat> | undefined;
  let rounding: Rounding | undefined;
  let layers: ShardedLayers | undefined;
  try {
    const specs = modelWeights(config);
    const formats = chosenFormats(specs, reader, quantize);
    if (holders) {
      refuseUndivided(options.gradientCheckpointing, formats.size > 0);
      layers = new ShardedLayers(device, dtype, specs, holders);
    }
    // The levels of a stored format cannot hold a weight with an adapter merged in.
    for (const name of merged?.pairs.keys() ?? []) formats.delete(name);
    if (formats.size > 0) chosen = formats;
    for (const spec of specs) {
      signal?.throwIfAborted();
      const format = formats.get(spec.name);
      const weight = format
        ? await quantized(device, reader, spec, format)
        : await frozen(device, reader, spec, { dtype, merged, layers });
      if (weight) weights.set(spec.name, spec.expert ? stacked(weight, spec.expert, weights) : weight);
      if (!format && dtype === 'bf16' && isHalved(reader, spec))
        rounding = addRounding(rounding, readStoredF32(reader, spec.name));
    }
  } catch (error) {
    for (const { value } of weights.values()) value.dispose();
    layers?.dispose();
    throw error;
  } finally {
    reader.close();
  }
  return new Decoder(
    device,
    config,
    weights,
    { ...options, dtype, quantize, formats: chosen, merged, layers },
    rounding,
  );
}

/** @throws StepTrainError E_CONFIG for a base that processes cannot hold together */
export function refuseUndivided(gradientCheckpointing: boolean | undefined, isQuantized: boolean): void {
  const lacking = !gradientCheckpointing
    ? 'run.gradient_checkpointing: true, without which the backward would keep every layer whole'
    : isQuantized
      ? 'weights in f32 or bf16, and some of this base are quantised: set model.quantize: none'
      : undefined;
  if (lacking) throw new StepTrainError('E_CONFIG', `a base that processes hold together needs ${lacking}`);
}

/** The weight as a view on that of all experts, made with the first, into which it is copied. */
function stacked(
  { name, value }: Parameter,
  { of, index, count }: ExpertPlace,
  weights: Map<string, Parameter>,
): Parameter {
  const all = `${of}.weight`;
  try {
    const stack = stackWeight(value, index, count, weights.get(all)?.value);
    if (!weights.has(all)) weights.set(all, { name: all, value: stack });
    return { name, value: expertWeight(stack, index) };
  } finally {
    value.dispose();
  }
}

/** Whether loading rounds a weight that was stored in f16: bf16 has fewer digits. */
function isHalved({ tensors }: CheckpointReader, { name, shape, kind }: WeightSpec): boolean {
  const stays = shape.length === 1 || kind === 'score' || kind === 'convolution';
  return !stays && tensors.get(name)?.dtype === 'F16';
}

function addRounding(sum: Rounding | undefined, values: Float32Array): Rounding {
  return {
    inexact: (sum?.inexact ?? 0) + countInexact(values, 'BF16'),
    values: (sum?.values ?? 0) + values.length,
  };
}

/** Another head than that of the directory: a weight that is not stored in its shape is made. */
export interface OtherHead {
  of(stored: ModelConfig): ModelConfig;
  make(weight: WeightSpec, index: number): Float32Array<ArrayBuffer>;
}

/** Heads that are trained in the same buffer and saved apart from the model. */
export interface FurtherHeads {
  readonly heads?: (config: ModelConfig) => ParameterSpec[];
}

/**
 * Loads a decoder whose every weight is trained: f32 masters in the returned buffers.
 *
 * @param head absent: that of the directory
 */
export function loadTrainableDecoder(
  device: Device,
  directory: string,
  { heads, merged: under, ...options }: LoadOptions & FurtherHeads = {},
  head?: OtherHead,
): { readonly decoder: Decoder; readonly parameters: TrainableParameters } {
  const stored = readModelConfig(directory);
  const merged = under === undefined ? undefined : readMergedAdapter(stored, under);
  using reader = ending(openDecoderWeights(directory, stored));
  const isStored = ({ name, shape }: WeightSpec) => reader.tensors.get(name)?.shape.join() === shape.join();

  const config = head?.of(stored) ?? stored;
  const specs = modelWeights(config).map((spec, i): ParameterSpec => {
    const made = head && !isStored(spec) ? head.make(spec, i) : undefined;
    return {
      name: spec.name,
      shape: spec.shape,
      init: made ?? withOffset(readStoredF32(reader, spec.name), spec),
    };
  });
  const made = trainableDecoder(device, config, [...specs, ...(heads?.(config) ?? [])], options);
  if (merged) {
    for (const name of merged.pairs.keys())
      addMerged((made.decoder.weights.get(name) as Parameter).value, name, merged);
    made.parameters.changed();
  }
  return made;
}

/** A decoder whose weights are the given ones, all trainable. */
export function trainableDecoder(
  device: Device,
  config: ModelConfig,
  specs: readonly ParameterSpec[],
  options: Omit<LoadOptions, 'merged'> = {},
): { readonly decoder: Decoder; readonly parameters: TrainableParameters } {
  const parameters = new TrainableParameters(device, specs);
  const weights = new Map(parameters.list.map((parameter) => [parameter.name, parameter]));
  for (const [of, experts] of ofExperts(modelWeights(config))) {
    const names = experts.map(({ name }) => name);
    weights.set(`${of}.weight`, parameters.joined(`${of}.weight`, names));
  }
  return { decoder: new Decoder(device, config, weights, { dtype: 'bf16', ...options }), parameters };
}

/**
 * One frozen weight in the layout that the kernels read; where processes hold it together, row-major into the part of this one, and
 * undefined. Waits, so that uploads do not pile up in the queue.
 */
async function frozen(
  device: Device,
  reader: CheckpointReader,
  spec: WeightSpec,
  { dtype, merged, layers }: FrozenOptions,
): Promise<Parameter | undefined> {
  const value = device.scope(() => {
    const stored = spec.offset
      ? device.tensor(withOffset(readStoredF32(reader, spec.name), spec), spec.shape)
      : uploadStored(device, reader, spec);
    const isMerged = merged?.pairs.has(spec.name);
    const exact = isMerged ? castTo(stored, 'f32') : stored;
    if (merged) addMerged(exact, spec.name, merged);
    if (!layers?.has(spec.name)) return device.keep(layout(exact, spec, dtype));
    const own = castTo(exact, dtype);
    layers.store(spec.name, own);
    // It may be an alias, which no scope frees.
    own.dispose();
    return undefined;
  });
  await device.synchronize();
  return value && { name: spec.name, value };
}

interface FrozenOptions {
  readonly dtype: DType;
  readonly merged: MergedAdapter | undefined;
  readonly layers: ShardedLayers | undefined;
}

/** A frozen weight in 4 or 8 bits, stored so or converted. Waits likewise. */
async function quantized(
  device: Device,
  reader: CheckpointReader,
  spec: WeightSpec,
  format: ChosenFormat,
): Promise<Parameter> {
  const shape = spec.shape as readonly [number, number];
  const value = device.scope(() => {
    if ('made' in format) {
      const values = uploadStored(device, reader, spec, (bytes, dtype) => {
        const at = nonFiniteIndex(bytes, dtype);
        if (at < 0) return;
        throw new WeightsError(
          `${reader.directory}: weight '${spec.name}': expected finite values to make ${format.made} of, found ` +
            `${toF32(bytes, dtype)[at]} at [${Math.floor(at / shape[1])},${at % shape[1]}]; the file is damaged, or its training diverged`,
        );
      });
      const bytes = quantizeWeight(values, format.made, quantizedBytes(format.made, shape));
      return device.keep(packQuantized(bytes, format.made, shape));
    }
    const stored = reader.quantized?.(spec.name) as QuantizedWeight;
    return device.keep(packQuantized(device.tensor(stored.bytes), format.stored, shape));
  });
  await device.synchronize();
  return { name: spec.name, value };
}

/** The weight of the model from that of a checkpoint. In place. */
function withOffset(
  values: Float32Array<ArrayBuffer>,
  { offset = 0 }: WeightSpec,
): Float32Array<ArrayBuffer> {
  if (offset !== 0) for (let i = 0; i < values.length; i++) values[i] = (values[i] as number) + offset;
  return values;
}

/** Adds the merged adapter to a weight in place. */
function addMerged(weight: Tensor, name: string, { pairs, values }: MergedAdapter): void {
  const pair = pairs.get(name);
  if (pair) addPair(weight, pair, (tensor) => values.get(tensor) as Float32Array<ArrayBuffer>);
}

function layout(stored: Tensor, { shape, kind }: WeightSpec, dtype: DType): Tensor {
  const { device } = stored;
  if (shape.length === 1 || kind === 'convolution') return castTo(stored, 'f32');
  // A tied embedding is indexed by row and multiplied with; the packed layout serves both.
  if (kind === 'embedding') return castTo(stored, dtype);
  return device.keep(packWeight(stored, kind === 'score' ? 'f32' : dtype));
}

function castTo(stored: Tensor, dtype: DType): Tensor {
  if (stored.dtype === dtype) return stored.alias();
  return stored.device.ops.cast({ x: stored, dtype }).y;
}

/** @param check is called with the values */
function uploadStored(
  device: Device,
  reader: CheckpointReader,
  { name, shape }: WeightSpec,
  check?: (bytes: Uint8Array<ArrayBuffer>, dtype: FloatDtype) => void,
): Tensor {
  const bytes = reader.read(name);
  const dtype = reader.tensors.get(name)?.dtype as FloatDtype;
  check?.(bytes, dtype);
  switch (dtype) {
    case 'F32':
      return device.tensor(new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4), shape);
    case 'BF16':
      return device.tensor(
        new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2),
        shape,
        'bf16',
      );
    case 'F16': {
      const cols = shape.at(-1) as number;
      const rows = shape.length === 1 ? 1 : (shape[0] as number);
      return device.ops.decode_f16({ x: device.tensor(bytes), rows, cols, dtype: 'f32' }).y.reshape(shape);
    }
  }
}
