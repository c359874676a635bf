/** A trained reward model as a scorer of steps. */
import { isBidirectional } from '../../architectures/table.js';
import { verdictTokenizer } from '../../data/verdict.js';
import type { Decoder } from '../../models/decoder.js';
import { tokensAtOnce } from '../../sequences/batching.js';
import { asRecord, type ReadingOptions, readable } from '../readable.js';
import { type Scorer, type Solution, scorer, scoresByStep } from '../scorer.js';
import type { NeutralScore } from '../settings.js';
import { probability } from '../verdict/judged.js';
import { type RewardItem, rewardItem } from './items.js';
import { rewardNetwork, scoreItems } from './network.js';
import { type SharedItem, sharedItems } from './shared.js';

/** Keys of section `reward_model` of the run. */
export interface RewardModelSettings {
  readonly type: 'prm' | 'orm' | 'joint';
  readonly head: 'scalar' | 'classes' | 'verdict';
  readonly input: 'whole' | 'prefixes';
  /** Treatment of the neutral one of three classes. Default `positive`. */
  readonly neutral_score?: NeutralScore | undefined;
}

export interface RewardModelScorerOptions extends ReadingOptions {
  readonly settings: RewardModelSettings;
  /** The output of `type: joint` to use. Default `step`. */
  readonly output?: 'step' | 'outcome';
  /** Least probability of a right step. Default 0.5. */
  readonly threshold?: number;
}

/**
 * The probability that each step is right. A model of outcomes gives the probability that the solution is, as the score
 * of its last step alone; the others are null.
 */
export function rewardModelScorer(
  decoder: Decoder,
  {
    name = 'reward model',
    tokenizer,
    prompt = {},
    role = {},
    settings,
    output = settings.type === 'orm' ? 'outcome' : 'step',
    threshold = 0.5,
    maxLength = decoder.config.maxPositions,
    skipUnreadable = false,
  }: RewardModelScorerOptions,
): Scorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const network = rewardNetwork({ decoder, role }, settings, verdicts);
  const { device, config } = decoder;
  // On a GPU the last bit of a score would hang on which other samples of its problem are asked for.
  const shares = device.info().name === 'cpu' && !isBidirectional(config);
  return scorer({
    name,
    unit: output,
    threshold,
    readsTurns: true,
    async score(solutions, { signal } = {}) {
      const items = solutions.map((asked, i): RewardItem => {
        const read = () => verdicts.solution(asRecord(asked), { steps: 'all' }).trunk;
        const trunk = readable(read, skipUnreadable);
        if (!trunk) return { sequences: [], rows: [], tokens: 0 };
        const solution = { ids: trunk.ids, ends: trunk.steps.map(({ end }) => end), labels: [] };
        const options = { ...settings, whole: false, everyStep: true, maxLength };
        return rewardItem(solution, i, verdicts, options);
      });
      const microBatchTokens = tokensAtOnce(decoder, signal);
      const problemOf = (i: number) => solutions[i]?.problem ?? '';
      const shared = shares
        ? sharedItems(items, problemOf, microBatchTokens)
        : items.map((item, i) => ({ item, of: [i] }));
      const found = await scoreItems(
        network,
        shared.map(({ item }) => item),
        { microBatchTokens, signal },
      );
      const scores = found && divided(shared, found, items);
      return scores?.map((list, i) => {
        const { rows, tokens } = items[i] as RewardItem;
        const judged = rows.flatMap(({ what, step }, r): [number, number][] =>
          what === output ? [[step, probability(list[r] as number)]] : [],
        );
        const byStep = scoresByStep(solutions[i] as Solution, judged);
        return {
          ...{ tokens, scores: byStep },
          ...(output === 'outcome' ? { outcome: byStep.at(-1) ?? null } : {}),
        };
      });
    },
  });
}

/** The scores of each item among those that were read together. */
function divided(
  shared: readonly SharedItem[],
  scores: readonly (readonly number[])[],
  items: readonly RewardItem[],
): number[][] {
  const found: number[][] = items.map(() => []);
  shared.forEach(({ of }, group) => {
    let at = 0;
    for (const i of of) {
      const count = (items[i] as RewardItem).rows.length;
      found[i] = (scores[group] ?? []).slice(at, at + count);
      at += count;
    }
  });
  return found;
}
