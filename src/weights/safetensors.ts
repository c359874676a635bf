/**
 * Strict reader of safetensors files (https://github.com/huggingface/safetensors): 8 bytes header length, a JSON header, then the
 * tensors without a gap up to the last byte of the file. Tensor data are read with `pread`, never mapped: if another program truncates
 * a mapped file, the process dies, while a read gives an error.
 */
import { dtypeNames, isDtype, tensorBytes } from './dtype.js';
import { show, WeightsError } from './error.js';
import { openWeights, readFully } from './file-bytes.js';
import { decodeUtf8, isJsonObject, type JsonObject, type JsonValue, parseJson } from './json.js';
import { OpenWeights } from './open-weights.js';
import type { TensorEntry, WeightsFile } from './weights-file.js';

/** The format's own limit. */
const MAX_HEADER_BYTES = 100_000_000;
const MAX_NAME_CHARACTERS = 512;

/** An open safetensors file; its tensors are in the order of the data. */
export interface SafetensorsFile extends WeightsFile {
  readonly metadata: ReadonlyMap<string, string>;
}

interface Header {
  readonly tensors: Map<string, TensorEntry>;
  readonly metadata: Map<string, string>;
}

/**
 * Opens a file and checks its whole layout.
 *
 * @throws WeightsError that names the file and, where there is one, the tensor
 */
export function openSafetensors(path: string): SafetensorsFile {
  return openWeights(
    path,
    'a safetensors file',
    (descriptor, bytes) => new OpenFile(path, descriptor, readHeader(path, descriptor, bytes)),
  );
}

function readHeader(path: string, descriptor: number, fileBytes: number): Header {
  if (fileBytes < 8) {
    throw new WeightsError(
      `${path}: expected a safetensors file of at least 8 bytes, found ${fileBytes}; it is truncated`,
    );
  }
  const lengthBytes = new Uint8Array(8);
  readFully(path, descriptor, lengthBytes, 0);
  const headerBytes = new DataView(lengthBytes.buffer).getBigUint64(0, true);
  if (headerBytes > BigInt(MAX_HEADER_BYTES)) {
    throw new WeightsError(
      `${path}: expected a header of at most ${MAX_HEADER_BYTES} bytes, found ${headerBytes}; this is not a safetensors file`,
    );
  }
  const dataBegin = 8 + Number(headerBytes);
  if (dataBegin > fileBytes) {
    throw new WeightsError(
      `${path}: expected a header of ${headerBytes} bytes, found ${fileBytes - 8} bytes after its length; the file is truncated`,
    );
  }
  const bytes = new Uint8Array(Number(headerBytes));
  readFully(path, descriptor, bytes, 8);
  if (bytes[0] !== 0x7b) throw new WeightsError(`${path}: expected the header to begin with '{'`);
  const header = parseJson(decodeUtf8(bytes, `${path}: header`), `${path}: header`) as JsonObject;
  return parseHeader(path, header, dataBegin, fileBytes);
}

function parseHeader(path: string, header: JsonObject, dataBegin: number, fileBytes: number): Header {
  const metadata = parseMetadata(path, header.__metadata__);
  const entries = Object.entries(header)
    .filter(([name]) => name !== '__metadata__')
    .map(([name, value]) => parseEntry(path, name, value));
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);

  const tensors = new Map<string, TensorEntry>();
  let position = 0;
  for (const { name, dtype, shape, begin, end } of entries) {
    if (begin !== position) {
      const problem =
        begin < position ? 'overlaps the tensor before it' : `leaves a hole of ${begin - position} bytes`;
      throw new WeightsError(
        `${path}: tensor '${name}' ${problem}: expected it to begin at byte ${position}, found ${begin}`,
      );
    }
    position = end;
    tensors.set(name, { dtype, shape, begin: dataBegin + begin, end: dataBegin + end });
  }
  const dataBytes = fileBytes - dataBegin;
  if (position !== dataBytes) {
    const problem = position > dataBytes ? 'the file is truncated' : 'there are extra bytes at the end';
    throw new WeightsError(
      `${path}: expected ${position} bytes of tensor data, found ${dataBytes}; ${problem}`,
    );
  }
  return { tensors, metadata };
}

function parseMetadata(path: string, value: JsonValue | undefined): Map<string, string> {
  if (value === undefined) return new Map();
  if (!isJsonObject(value))
    throw new WeightsError(`${path}: __metadata__: expected an object, found ${show(value)}`);
  return new Map(
    Object.entries(value).map(([key, text]) => {
      if (typeof text !== 'string') {
        throw new WeightsError(`${path}: __metadata__: expected a string for '${key}', found ${show(text)}`);
      }
      return [key, text];
    }),
  );
}

function parseEntry(path: string, name: string, value: JsonValue): TensorEntry & { readonly name: string } {
  const fail = (problem: string): never => {
    throw new WeightsError(`${path}: tensor ${show(name)}: ${problem}`);
  };
  const badName = tensorNameProblem(name);
  if (badName !== undefined) fail(badName);
  if (!isJsonObject(value)) return fail(`expected an object, found ${show(value)}`);
  const { dtype, shape, data_offsets: offsets, ...rest } = value;
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) fail(`expected only dtype, shape and data_offsets, found '${unknown}'`);
  if (typeof dtype !== 'string' || !isDtype(dtype)) {
    return fail(`expected dtype to be one of ${dtypeNames().join(', ')}, found ${show(dtype)}`);
  }
  if (!isListOfCounts(shape))
    return fail(`expected shape to be a list of non-negative integers, found ${show(shape)}`);
  if (!isListOfCounts(offsets) || offsets.length !== 2) {
    return fail(`expected data_offsets to be two non-negative integers, found ${show(offsets)}`);
  }
  const [begin, end] = offsets as [number, number];
  const bytes = tensorBytes(dtype, shape);
  if (bytes === undefined) return fail(`the size of ${dtype} × ${show(shape)} overflows`);
  if (end < begin) fail(`expected data_offsets to be in order, found ${show(offsets)}`);
  if (end - begin !== bytes)
    fail(`expected ${bytes} bytes for ${dtype} × ${show(shape)}, found ${end - begin}`);
  return { name, dtype, shape, begin, end };
}

/** The defect of a tensor's name; undefined where there is none. */
export function tensorNameProblem(name: string): string | undefined {
  if (name === '') return 'expected a name, found an empty one';
  if (name.length > MAX_NAME_CHARACTERS)
    return `expected a name of at most ${MAX_NAME_CHARACTERS} characters`;
  if (/\p{Cc}|\p{Cs}/u.test(name)) return 'expected no control character or lone surrogate in the name';
  return undefined;
}

function isListOfCounts(value: JsonValue | undefined): value is readonly number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}

class OpenFile extends OpenWeights implements SafetensorsFile {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly metadata: ReadonlyMap<string, string>;

  constructor(path: string, descriptor: number, { tensors, metadata }: Header) {
    super(path, descriptor);
    this.tensors = tensors;
    this.metadata = metadata;
  }

  protected placeOf(name: string): number | undefined {
    return this.tensors.get(name)?.begin;
  }
}
