/** Scores of steps by a token classifier, or by two verdict words, as `score` and best-of-n compute them. */
import type { Device } from '#src/runtime/device.js';
import { type RewardItem, rewardItem } from '#src/scoring/reward-model/items.js';
import { type RewardNetwork, scoreItems } from '#src/scoring/reward-model/network.js';
import { sharedItems } from '#src/scoring/reward-model/shared.js';
import { tokensAtOnce } from '#src/sequences/batching.js';
import type { ScoreCase } from '../cases.js';
import { randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { stopwatch } from './stopwatch.js';

const STEPS = 6;

export async function benchScore(device: Device, item: ScoreCase, seconds: number): Promise<number[]> {
  const { config, dtype, lengths, ofOne, words } = item;
  const architectures = (config.architectures as string[]).map((name) =>
    words ? name : name.replace('CausalLM', 'TokenClassification'),
  );
  const decoder = await randomDecoder(device, { ...config, architectures }, dtype);
  const network: RewardNetwork = {
    decoder,
    role: {},
    head: words ? 'verdict' : 'classes',
    neutral_score: 'positive',
    words: words ?? [0, 0],
  };
  const items = lengths.map((length, i) => solution(item, length, i, decoder.config.vocabSize));
  const { signal } = new AbortController();
  const microBatchTokens = tokensAtOnce(decoder, signal);
  const samples = await stopwatch(device, seconds, async () => {
    const read = ofOne ? sharedItems(items, () => '', microBatchTokens).map((shared) => shared.item) : items;
    const scores = await scoreItems(network, read, { microBatchTokens, signal });
    if (!scores?.flat().every(Number.isFinite)) throw new Error('a score of the benchmark is not finite');
  });
  decoder.dispose();
  return samples;
}

function solution(
  { problem, ofOne }: ScoreCase,
  length: number,
  index: number,
  vocabulary: number,
): RewardItem {
  const ids = [
    ...randomIds(problem, vocabulary, ofOne ? 1 : 2 * index + 1),
    ...randomIds(length - problem, vocabulary, 2 * index + 2),
  ];
  const ends = Array.from(
    { length: STEPS },
    (_, i) => problem + Math.round(((i + 1) * (length - problem)) / STEPS),
  );
  const options = { type: 'prm', input: 'whole', whole: false, everyStep: true, maxLength: length } as const;
  return rewardItem({ ids, ends, labels: [] }, index, { tailIds: [] }, options);
}
