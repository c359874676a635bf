/**
 * Weights of fp8 or int8 with separate scales: `X.weight_scale` of compressed-tensors and fbgemm, by output, for the
 * whole weight or by square of 128; `X.weight_scale_inv` of fine-grained fp8, by square. Scales of activations are
 * ignored: activations are not quantised.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { joined } from '../../native/joined.js';
import { toF32 } from '../convert.js';
import { isFloatDtype } from '../dtype.js';
import { show, WeightsError } from '../error.js';
import { isJsonObject, type JsonValue, readJsonObject } from '../json.js';
import type { CheckpointReader } from '../reader.js';
import { finite, type QuantizedWeight, SQUARE, type StoredParts } from './format.js';

/** Scales of activations, which are computed in the dtype of the model. */
const OF_ACTIVATIONS = ['input_scale', 'input_scale_ub', 'input_zero_point'];

/**
 * Parts by the name of the weight.
 *
 * @param isScaled whether a name may have scales
 */
export function scaledWeights(
  reader: CheckpointReader,
  isScaled: (name: string) => boolean,
): Map<string, StoredParts> {
  const found = new Map<string, StoredParts>();
  for (const [name, { dtype, shape }] of reader.tensors) {
    if (!name.endsWith('.weight') || (dtype !== 'F8_E4M3' && dtype !== 'I8') || !isScaled(name)) continue;
    found.set(name, weightOf(reader, name, dtype, shape));
  }
  if (found.size > 0) refuseOtherBlocks(reader.directory);
  return found;
}

function weightOf(
  reader: CheckpointReader,
  name: string,
  dtype: 'F8_E4M3' | 'I8',
  shape: readonly number[],
): StoredParts {
  const where = `${reader.directory}: weight '${name}'`;
  const [outputs, features] = shape as readonly [number, number];
  if (shape.length !== 2)
    throw new WeightsError(`${where}: expected a matrix of ${dtype}, found ${show(shape)}`);
  const module = name.slice(0, -'weight'.length);
  const scaleName = ['weight_scale', 'weight_scale_inv']
    .map((suffix) => module + suffix)
    .find((key) => reader.tensors.has(key));
  if (scaleName === undefined)
    throw new WeightsError(
      `${where}: expected '${module}${usualScale(reader)}' beside its ${dtype} values, found none`,
    );
  if (reader.tensors.has(`${module}weight_zero_point`))
    throw new WeightsError(
      `${where}: expected symmetric values, found '${module}weight_zero_point'; use the unquantised model`,
    );
  const scale = reader.tensors.get(scaleName)!;
  const { dtype: scaleType } = scale;
  if (!isFloatDtype(scaleType))
    throw new WeightsError(`${where}: expected '${scaleName}' in F32, BF16 or F16, found ${scaleType}`);
  const squares = [Math.ceil(outputs / SQUARE), Math.ceil(features / SQUARE)];
  const shaped = (...shapes: readonly (readonly number[])[]) =>
    shapes.some((each) => each.join() === scale.shape.join());
  const isWhole = shaped([], [1], [1, 1]);
  const byOutput = shaped([outputs], [outputs, 1]);
  if (!isWhole && !byOutput && !(dtype === 'F8_E4M3' && shaped(squares)))
    throw new WeightsError(
      `${where}: expected a scale for each of ${outputs} outputs${dtype === 'I8' ? '' : `, or each of ${show(squares)} squares of ${SQUARE}`}, ` +
        `found '${scaleName}' of shape ${show(scale.shape)}`,
    );
  const format = dtype === 'I8' ? 'int8' : isWhole || byOutput ? 'e4m3' : 'e4m3_128';
  return {
    shape: [outputs, features],
    parts: [
      name,
      scaleName,
      ...OF_ACTIVATIONS.map((suffix) => module + suffix).filter((key) => reader.tensors.has(key)),
    ],
    format,
    read(): QuantizedWeight {
      const codes = reader.read(name);
      if (dtype === 'F8_E4M3' && codes.some((code) => (code & 127) === 127))
        throw new WeightsError(`${where}: expected numbers, found NaN`);
      const values = finite(toF32(reader.read(scaleName), scaleType), where, scaleName);
      const each = isWhole ? new Float32Array(outputs).fill(values[0]!) : values;
      return {
        format,
        bytes: joined([codes, new Uint8Array(each.buffer, each.byteOffset, each.byteLength)]),
      };
    },
  };
}

/** Name of a scale as other weights of the checkpoint have it. */
const usualScale = ({ tensors }: CheckpointReader) =>
  [...tensors.keys()].some((name) => name.endsWith('.weight_scale_inv'))
    ? 'weight_scale_inv'
    : 'weight_scale';

/**
 * Refuses a `config.json` with other blocks than squares of 128, whose scales may have the shape of those of squares.
 *
 * @throws WeightsError for such blocks; scales by output and for whole weights need no entry
 */
function refuseOtherBlocks(directory: string): void {
  const path = join(directory, 'config.json');
  const quantization = existsSync(path) ? readJsonObject(path).quantization_config : undefined;
  if (!isJsonObject(quantization)) return;
  for (const [key, size] of blockSizes(quantization)) {
    if (Array.isArray(size) && size.length === 2 && size.every((extent) => extent === SQUARE)) continue;
    throw new WeightsError(
      `${path}: quantization_config: ${key}: expected [${SQUARE},${SQUARE}], or nothing where scales are by output or of a whole ` +
        `weight, found ${show(size)}; use the unquantised model`,
    );
  }
}

/** Block sizes of fine-grained fp8, and of the groups of compressed-tensors. */
function blockSizes({ weight_block_size, config_groups }: Readonly<Record<string, JsonValue>>) {
  const groups = isJsonObject(config_groups) ? Object.entries(config_groups) : [];
  const sizes = groups.map(([name, group]): [string, JsonValue | undefined] => {
    const weights = isJsonObject(group) && isJsonObject(group.weights) ? group.weights : {};
    return [`config_groups: ${name}: weights: block_structure`, weights.block_structure];
  });
  return [['weight_block_size', weight_block_size] as const, ...sizes].filter(
    (entry): entry is [string, JsonValue] => entry[1] !== undefined && entry[1] !== null,
  );
}
