/** Weights saved by bitsandbytes in 4 bits: `X.weight`, its scales, and a state in JSON. */
import { joined } from '../../native/joined.js';
import { show, WeightsError } from '../error.js';
import { Fields } from '../fields.js';
import { decodeUtf8, isJsonObject, parseJson } from '../json.js';
import type { CheckpointReader } from '../reader.js';
import {
  finite,
  NESTED_BLOCK,
  NESTED_LEVELS,
  NF4_LEVELS,
  type QuantizedWeight,
  type StoredParts,
} from './format.js';

const STATE = /^(.*)\.quant_state\.bitsandbytes__(\w+)$/;
/** Weights of LLM.int8(), whose values are not simply products of a code and a scale. */
const INT8 = /\.SCB$/;

const REARRANGED =
  'at its first forward on a CPU with AVX-512-BF16 bitsandbytes transposes scales for itself: load the model again and save it before it computes';

/** Parts by the name of the weight. */
export function bitsandbytesWeights(reader: CheckpointReader): Map<string, StoredParts> {
  const found = new Map<string, StoredParts>();
  for (const stored of reader.tensors.keys()) {
    if (INT8.test(stored))
      throw new WeightsError(
        `${reader.directory}: expected 4-bit weights of bitsandbytes, found its 8-bit ones ('${stored}'); use the unquantised ` +
          'model with model.quantize: int8',
      );
    const [, name, type] = STATE.exec(stored) ?? [];
    if (name === undefined) continue;
    if (type !== 'nf4')
      throw new WeightsError(
        `${reader.directory}: weight '${name}': expected quant_type nf4, found ${show(type)}; use the unquantised model with ` +
          'model.quantize: nf4',
      );
    found.set(name, weightOf(reader, name, stored));
  }
  return found;
}

function weightOf(reader: CheckpointReader, name: string, stateName: string): StoredParts {
  const where = `${reader.directory}: weight '${name}'`;
  const state = stateOf(reader, stateName, where);
  const type = state.string('quant_type');
  if (type !== 'nf4') state.fail('quant_type', "'nf4'");
  if (state.requiredInteger('blocksize') !== 64)
    state.fail('blocksize', '64, as products read it; use the unquantised model with model.quantize: nf4');
  const shape = state.integers('shape') ?? [];
  if (shape.length !== 2) state.fail('shape', '[outputs, features]');
  const [outputs, features] = shape as readonly [number, number];
  if (features % 64 !== 0)
    state.fail('shape', 'a multiple of 64 features, so that no block of 64 has values of two outputs');
  const offset = state.number('nested_offset');
  const double = offset !== undefined;
  if (double && !Number.isFinite(Math.fround(offset)))
    state.fail('nested_offset', 'a finite number in f32; the file is damaged');
  if (double && state.requiredInteger('nested_blocksize') !== NESTED_BLOCK)
    state.fail('nested_blocksize', `${NESTED_BLOCK}`);

  const blocks = (outputs * features) / 64;
  const part = (suffix: string, dtype: string, bytes: number) => {
    const entry = reader.tensors.get(name + suffix);
    if (entry === undefined)
      throw new WeightsError(`${where}: expected a tensor '${name}${suffix}' beside it, found none`);
    // Codes may be stored as any type of bytes (`bnb_4bit_quant_storage`).
    if ((suffix !== '' && entry.dtype !== dtype) || entry.end - entry.begin !== bytes)
      throw new WeightsError(
        `${where}: expected ${bytes} bytes${suffix === '' ? '' : ` of ${dtype}`} in '${name}${suffix}' for ${show(shape)}, found ` +
          `${entry.end - entry.begin} of ${entry.dtype}${suffix === '.absmax' && entry.dtype === 'BF16' ? `; ${REARRANGED}` : ''}`,
      );
    return name + suffix;
  };
  const codes = part('', 'U8', (outputs * features) / 2);
  const levels = part('.quant_map', 'F32', 4 * NF4_LEVELS.length);
  const scales = double
    ? [
        part('.absmax', 'U8', blocks),
        part('.nested_absmax', 'F32', 4 * Math.ceil(blocks / NESTED_BLOCK)),
        part('.nested_quant_map', 'F32', 4 * NESTED_LEVELS),
      ]
    : [part('.absmax', 'F32', 4 * blocks)];
  return {
    shape: [outputs, features],
    parts: [codes, levels, ...scales, stateName],
    format: double ? 'nf4_double' : 'nf4',
    read(): QuantizedWeight {
      const map = new Float32Array(reader.read(levels).buffer);
      if (map.some((level, i) => level !== NF4_LEVELS[i]))
        throw new WeightsError(`${where}: expected the levels of NF4 in '${levels}', found others`);
      const bytes = [codes, ...scales].map((tensor) => reader.read(tensor));
      scales.forEach((tensor, i) => {
        if (reader.tensors.get(tensor)?.dtype === 'F32')
          finite(new Float32Array((bytes[i + 1] as Uint8Array<ArrayBuffer>).buffer), where, tensor);
      });
      if (double) bytes.push(new Uint8Array(new Float32Array([offset]).buffer));
      return { format: this.format, bytes: joined(bytes) };
    },
  };
}

function stateOf(reader: CheckpointReader, name: string, where: string): Fields {
  const json = parseJson(decodeUtf8(reader.read(name), `${where}: ${name}`), `${where}: ${name}`);
  if (!isJsonObject(json))
    throw new WeightsError(`${where}: expected an object in '${name}', found ${show(json)}`);
  return new Fields(json, `${where}: quant_state`);
}
