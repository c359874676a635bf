/** The values that a pickle of tensors may hold, and the only constructors that it may name. */
import type { Dtype } from '../dtype.js';

export type Value =
  | null
  | boolean
  | number
  | string
  | Value[]
  | Tuple
  | Map<string | number, Value>
  | Name
  | Storage
  | Tensor;

export class Tuple {
  constructor(readonly items: readonly Value[]) {}
}

/** A class or function that the pickle names; never more than its name. */
export class Name {
  constructor(readonly name: string) {}
}

/** The values behind one tensor or several: the entry `data/KEY` of the archive. */
export class Storage {
  constructor(
    readonly key: string,
    readonly dtype: Dtype,
    /** Length in elements. */
    readonly length: number,
  ) {}
}

export class Tensor {
  constructor(
    readonly storage: Storage,
    /** Offset in elements, as are the strides. */
    readonly offset: number,
    readonly shape: readonly number[],
    readonly strides: readonly number[],
  ) {}
}

const STORAGES: Readonly<Record<string, Dtype>> = {
  'torch.FloatStorage': 'F32',
  'torch.BFloat16Storage': 'BF16',
  'torch.HalfStorage': 'F16',
  'torch.DoubleStorage': 'F64',
  'torch.LongStorage': 'I64',
  'torch.IntStorage': 'I32',
  'torch.ShortStorage': 'I16',
  'torch.CharStorage': 'I8',
  'torch.ByteStorage': 'U8',
  'torch.BoolStorage': 'BOOL',
  'torch.ComplexFloatStorage': 'C64',
};

/** Constructors by name; each returns undefined for other arguments than it takes. */
const CONSTRUCTORS: Readonly<Record<string, (args: readonly Value[]) => Value | undefined>> = {
  // Arguments with items, as Python 2 wrote them, are refused: a list that is named often would be copied often.
  'collections.OrderedDict': (args) => (args.length === 0 ? new Map() : undefined),
  // The first arguments are storage, offset, shape and strides; the others concern training alone.
  'torch._utils._rebuild_tensor_v2': ([storage, offset, shape, strides]) =>
    storage instanceof Storage && isCount(offset) && isCounts(shape) && isCounts(strides)
      ? tensorOf(storage, offset, shape.items as number[], strides.items as number[])
      : undefined,
  'torch._utils._rebuild_parameter': ([data]) => (data instanceof Tensor ? data : undefined),
};

export function isKnownName(name: string): boolean {
  return Object.hasOwn(STORAGES, name) || Object.hasOwn(CONSTRUCTORS, name);
}

/** Calls a constructor; undefined where it takes other arguments. */
export function construct({ name }: Name, args: readonly Value[]): Value | undefined {
  return Object.hasOwn(CONSTRUCTORS, name) ? CONSTRUCTORS[name]?.(args) : undefined;
}

/** The storage that ('storage', type, key, device, length) names; undefined for anything else. */
export function storageOf(id: Value): Storage | undefined {
  if (!(id instanceof Tuple)) return undefined;
  const [kind, type, key, , length] = id.items;
  if (kind !== 'storage' || !(type instanceof Name) || typeof key !== 'string' || !isCount(length))
    return undefined;
  const dtype = Object.hasOwn(STORAGES, type.name) ? STORAGES[type.name] : undefined;
  return dtype && new Storage(key, dtype, length);
}

/** Undefined where the tensor leaves its storage, or repeats elements and so would be larger than it. */
function tensorOf(
  storage: Storage,
  offset: number,
  shape: readonly number[],
  strides: readonly number[],
): Tensor | undefined {
  if (shape.length !== strides.length) return undefined;
  const empty = shape.includes(0);
  let [count, last] = [1, offset];
  for (const [i, extent] of shape.entries()) {
    if (extent === 0) continue;
    count *= extent;
    last += (extent - 1) * (strides[i] as number);
    if (count > storage.length && !empty) return undefined;
    if (!Number.isSafeInteger(count) || !Number.isSafeInteger(last)) return undefined;
  }
  if (!empty && last >= storage.length) return undefined;
  return new Tensor(storage, offset, shape, strides);
}

function isCount(value: Value | undefined): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/** More extents than torch allows are none. */
const MAX_EXTENTS = 64;

function isCounts(value: Value | undefined): value is Tuple {
  return value instanceof Tuple && value.items.length <= MAX_EXTENTS && value.items.every(isCount);
}
