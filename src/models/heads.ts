/**
 * Heads that replace the language-model head: a scalar (a value or a reward), or classes. Weights are
 * f32 whatever the dtype of the trunk, and so are the outputs.
 */
import { publishedHead } from '../architectures/heads.js';
import { classifierOf } from '../architectures/table.js';
import { type Parameter, type ParameterSpec, TrainableParameters } from '../autograd/parameters.js';
import { ending } from '../native/ending.js';
import { linear } from '../ops/gemm.js';
import { cast, gatherRows, reshape } from '../ops/memory.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { fromF32 } from '../weights/convert.js';
import { WeightsError } from '../weights/error.js';
import { openSafetensors } from '../weights/safetensors.js';
import { writeSafetensors } from '../weights/safetensors-writer.js';
import type { RaggedBatch } from './batch.js';
import type { Decoder, LinearHead, Role } from './decoder.js';
import { draw } from './initial-values.js';

/** The head of a role: its own, or the classifier of its adapter or of the base; undefined: the language-model head, or none. */
export function roleHead(decoder: Decoder, role: Role): LinearHead | undefined {
  if (role.head) return role.head;
  const own = role.adapter?.head;
  const { kind } = own ?? decoder.config.head;
  if (kind === 'causal' || kind === 'none') return undefined;
  const { modelType, head } = decoder.config;
  const { module, reads, pool } = classifierOf(own ? { modelType } : { modelType, head });
  const pools = kind === 'sequence' || (!own && publishedHead(head)?.hidden !== undefined);
  const ofSequences = kind === 'sequence';
  const bias = `${module}.bias`;
  return {
    weight: decoder.weight(`${module}.weight`, role),
    bias: own ? role.adapter?.saved(bias) : decoder.weights.get(bias),
    reads: ofSequences ? reads : 'every',
    pool: pools && pool ? (rows) => decoder.pool(rows, role) : undefined,
  };
}

/** The rows of a batch that a head reads, i32 [B]; undefined: every row. Give them to `headOutputs`. */
export function headRows(
  device: Device,
  { offsets }: Pick<RaggedBatch, 'offsets'>,
  { reads }: Pick<LinearHead, 'reads'>,
): Tensor | undefined {
  if (reads === 'every') return undefined;
  const rows = reads === 'first' ? offsets.slice(0, -1) : offsets.slice(1).map((end) => end - 1);
  return device.tensor(Int32Array.from(rows));
}

/**
 * Outputs of `head` at the chosen rows, f32 [R, C]. Differentiable.
 *
 * @param hidden [T, hidden], from `Decoder.forward`
 * @param rows i32 [R]; absent: every row
 */
export function headOutputs(hidden: Tensor, head: LinearHead, rows?: Tensor): Tensor {
  const { device } = hidden;
  return device.scope(() => {
    const chosen = rows ? gatherRows(hidden, rows) : hidden;
    const read = head.pool ? head.pool(chosen) : chosen;
    return linear(cast(read, 'f32'), head.weight, { bias: head.bias });
  });
}

/** The outputs of a head of one output: f32 [R]. */
export function scalarOutputs(hidden: Tensor, head: LinearHead, rows?: Tensor): Tensor {
  const { device } = hidden;
  return device.scope(() => {
    const outputs = headOutputs(hidden, head, rows);
    return reshape(outputs, [outputs.shape[0] as number]);
  });
}

/** Writes parameters to a safetensors file, f32. */
export async function writeParameters(path: string, parameters: readonly Parameter[]): Promise<void> {
  const sources = parameters.map(({ name, value }) => ({
    name,
    shape: value.shape,
    dtype: 'F32' as const,
    data: async () => fromF32((await value.readFloats()) as Float32Array<ArrayBuffer>, 'F32'),
  }));
  await writeSafetensors(path, sources, { format: 'pt' });
}

/** A head that is trained. */
export class TrainableHead implements LinearHead {
  readonly weight: Parameter;
  readonly bias: Parameter | undefined;

  constructor(
    readonly parameters: TrainableParameters,
    readonly reads: LinearHead['reads'],
  ) {
    this.weight = parameters.get('score.weight') as Parameter;
    this.bias = parameters.get('score.bias');
  }

  /** Writes `score.weight` and `score.bias` to a safetensors file, f32. */
  async save(path: string): Promise<void> {
    await writeParameters(path, this.parameters.list);
  }

  dispose(): void {
    this.parameters.dispose();
  }
}

export interface HeadOptions {
  readonly hiddenSize: number;
  /** Default 1: a scalar head. */
  readonly numLabels?: number;
  /** Default 'every', for values of tokens. */
  readonly reads?: LinearHead['reads'];
}

/** Random stream from which new heads are drawn, apart from that of adapters. */
const HEAD_STREAM = 0x68656164;

/** A new head: normal weights drawn from `seed`, bias 0. */
export function createHead(
  device: Device,
  options: HeadOptions & {
    readonly seed: number;
    /** Standard deviation of the weights. Default 0.02. */
    readonly deviation?: number;
  },
): TrainableHead {
  const { hiddenSize, numLabels = 1, reads = 'every', seed, deviation = 0.02 } = options;
  const shape = [numLabels, hiddenSize];
  const specs: ParameterSpec[] = [
    { name: 'score.weight', shape, init: draw({ kind: 'normal', deviation }, shape, seed, HEAD_STREAM) },
    { name: 'score.bias', shape: [numLabels], init: new Float32Array(numLabels) },
  ];
  return new TrainableHead(new TrainableParameters(device, specs), reads);
}

/** A head from the file that `TrainableHead.save` wrote. */
export function loadHead(device: Device, path: string, options: HeadOptions): TrainableHead {
  const { hiddenSize, numLabels = 1, reads = 'every' } = options;
  using file = ending(openSafetensors(path));
  const specs = [
    { name: 'score.weight', shape: [numLabels, hiddenSize] },
    { name: 'score.bias', shape: [numLabels] },
  ].map(({ name, shape }): ParameterSpec => {
    const found = file.tensors.get(name);
    if (found?.dtype !== 'F32' || found.shape.join() !== shape.join()) {
      const actual = found ? `${found.dtype} [${found.shape.join(', ')}]` : 'none';
      throw new WeightsError(
        `${path}: tensor '${name}': expected F32 [${shape.join(', ')}], found ${actual}; it belongs to another model`,
      );
    }
    return { name, shape, init: readStoredF32(file, name) };
  });
  return new TrainableHead(new TrainableParameters(device, specs), reads);
}
