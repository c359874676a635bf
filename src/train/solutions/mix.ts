/** Chooses the problems of each rollout batch: all of them in turn, or groups of them by weight. */
import { inMemory } from '../../data/dataset.js';
import { badOption } from '../../files/data-error.js';
import { PhiloxStream } from '../../random/philox.js';
import {
  type BatchSchedule,
  type BatchSettings,
  epochOrder,
  scheduleBatches,
} from '../../sequences/batching.js';

/** Domain of the random stream that chooses groups. */
const MIX = 0x6d697870;

export interface MixOptions extends Pick<BatchSettings, 'batchSize' | 'epochs' | 'maxBatches' | 'seed'> {
  /** Weights of groups, by name; empty: every problem is equally frequent. */
  readonly weights: Readonly<Record<string, number>>;
}

/**
 * The problems of each batch. With weights a batch draws the group of each of its problems, and the problems of a group
 * come in turn, shuffled again after each pass; there are as many batches as without. Depends on the seed alone.
 *
 * @param groups of the problems, by index; undefined for a problem that takes no part
 * @throws DataError for a weight of a group that does not exist
 */
export function mixedBatches(
  groups: readonly ({ readonly group?: string | undefined } | undefined)[],
  { batchSize, epochs, maxBatches, seed, weights }: MixOptions,
): Omit<BatchSchedule, 'tokens'> {
  const items = groups.flatMap((problem, i) => (problem ? [i] : []));
  const plain = scheduleBatches(items, {
    epochs,
    maxBatches,
    seed,
    sizeOf: () => 1,
    tokensOf: () => 1,
    batchSize,
  });
  const named = Object.entries(weights);
  if (named.length === 0) return plain;
  const known = [...new Set(items.map((i) => groups[i]?.group ?? '(none)'))].sort();
  const unknown = named.find(([name]) => !known.includes(name));
  if (unknown)
    throw badOption(
      `rollout.mix names the group ${JSON.stringify(unknown[0])}, which no training problem belongs to; there are ${known.join(', ')}`,
    );
  const sets = named
    .filter(([, weight]) => weight > 0)
    .map(([name, weight], number) => ({
      weight,
      next: inTurn(
        items.filter((i) => (groups[i]?.group ?? '(none)') === name),
        (seed ^ Math.imul(number + 1, 0x9e3779b1)) >>> 0,
      ),
    }));
  let total = 0;
  const ends = sets.map(({ weight }) => {
    total += weight;
    return total;
  });
  const stream = new PhiloxStream(seed, MIX, 0);
  const batches = Array.from(plain.batches, ({ length }) => {
    const batch = new Set<number>();
    // A group smaller than its share of a batch would give a problem twice.
    for (let tries = 0; batch.size < length && tries < 20 * length; tries++) {
      const place = stream.uniform() * total;
      const set = ends.findIndex((end) => place < end);
      batch.add(sets.at(set)?.next() as number);
    }
    return [...batch];
  });
  return { batches: inMemory(batches), epochAt: plain.epochAt };
}

/**
 * Says which groups have fewer problems than their weight asks for in a batch, where no problem stands twice: the others then come in
 * their place, or the batch is smaller.
 */
export function mixWarnings(
  groups: readonly ({ readonly group?: string | undefined } | undefined)[],
  { batchSize, weights }: Pick<MixOptions, 'batchSize' | 'weights'>,
): string[] {
  const named = Object.entries(weights).filter(([, weight]) => weight > 0);
  const total = named.reduce((sum, [, weight]) => sum + weight, 0);
  const countOf = (name: string) => groups.filter((own) => own && (own.group ?? '(none)') === name).length;
  const all = named.reduce((sum, [name]) => sum + countOf(name), 0);
  return named.flatMap(([name, weight]) => {
    const [wanted, count] = [(batchSize * weight) / total, countOf(name)];
    if (count >= wanted) return [];
    return [
      `rollout.mix asks ${JSON.stringify(name)} for ${Number(wanted.toFixed(1))} of the ${batchSize} problems of a rollout batch, in which none stands ` +
        `twice, and it has ${count}: ` +
        (all < batchSize
          ? `batches have at most ${all} problems`
          : 'problems of other groups come in their place'),
    ];
  });
}

/** Items one after the other, for ever, each pass in an order of its own. */
function inTurn(items: readonly number[], seed: number): () => number {
  let at = 0;
  let order: Int32Array = new Int32Array();
  return () => {
    const place = at++ % items.length;
    if (place === 0) order = epochOrder(items.length, seed, Math.floor((at - 1) / items.length));
    return items[order[place] as number] as number;
  };
}
