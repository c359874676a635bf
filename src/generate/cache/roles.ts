/** Keys and values may be shared only within one adapter at one version of its weights. */
import type { ParameterBuffer } from '../../autograd/parameters.js';
import type { Adapter } from '../../models/adapter.js';
import type { Decoder, Role } from '../../models/decoder.js';
import type { RoleKey } from './prefixes.js';

const numbers = new WeakMap<Adapter, number>();
let adapters = 0;

/** Differs between adapters, and changes with their weights or the decoder's. */
export function roleKey(decoder: Decoder, { adapter }: Role): RoleKey {
  return `${adapter ? numberOf(adapter) : 'base'}@${versionOf([...decoder.weights.values(), ...(adapter?.all() ?? [])])}`;
}

/** Whether two keys belong to the same adapter. */
export function sameRole(a: RoleKey, b: RoleKey): boolean {
  return a.split('@')[0] === b.split('@')[0];
}

function numberOf(adapter: Adapter): number {
  const known = numbers.get(adapter) ?? ++adapters;
  numbers.set(adapter, known);
  return known;
}

function versionOf(parameters: Iterable<{ readonly buffer?: ParameterBuffer }>): number {
  const buffers = new Set<ParameterBuffer>();
  for (const { buffer } of parameters) if (buffer) buffers.add(buffer);
  return Array.from(buffers, ({ version }) => version).reduce((sum, version) => sum + version, 0);
}
