/** A trained reward model as a scorer of steps. */
import { type VerdictPromptOptions, verdictTokenizer } from '../../data/verdict.js';
import { type StepScorer, scoresByStep } from '../../eval/step-scorer.js';
import { DataError } from '../../files/data-error.js';
import type { Decoder, Role } from '../../models/decoder.js';
import type { NeutralScore } from '../../scoring/settings.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { type RewardItem, rewardItem } from './items.js';
import { probability, rewardNetwork, scoreItems } from './score.js';

/** As in section `reward` of the run's configuration. */
export interface RewardModelSettings {
  readonly type: 'prm' | 'orm' | 'joint';
  readonly head: 'scalar' | 'classes' | 'verdict';
  readonly input: 'whole' | 'prefixes';
  /** Of three classes: what the neutral one counts as. Default `positive`. */
  readonly neutral_score?: NeutralScore | undefined;
}

export interface RewardModelScorerOptions {
  readonly tokenizer: Tokenizer;
  /** As the model was trained with. */
  readonly prompt?: VerdictPromptOptions;
  readonly role?: Pick<Role, 'adapter'>;
  readonly settings: RewardModelSettings;
  /** Of `type: joint`: which of its outputs. Default `step`. */
  readonly output?: 'step' | 'outcome';
  readonly maxLength?: number;
  /** Give no score to solutions that the tokenizer cannot express, instead of an error. Default false. */
  readonly skipUnreadable?: boolean;
}

/** Tokens of a forward; no score depends on it. */
const TOKENS_AT_ONCE = 4096;

/**
 * The probability that each step is right or, of a model of outcomes, that the solution is: a score at its last step alone,
 * null at the others.
 */
export function rewardModelScorer(
  decoder: Decoder,
  {
    tokenizer,
    prompt = {},
    role = {},
    settings,
    output = settings.type === 'orm' ? 'outcome' : 'step',
    maxLength = decoder.config.maxPositions,
    skipUnreadable = false,
  }: RewardModelScorerOptions,
): StepScorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const network = rewardNetwork({ decoder, role }, settings, verdicts);
  const trunkOf = (record: Parameters<typeof verdicts.solution>[0]) => {
    try {
      return verdicts.solution(record, { steps: 'all' }).trunk;
    } catch (error) {
      if (skipUnreadable && error instanceof DataError && error.kind === 'tokenizer') return undefined;
      throw error;
    }
  };
  return {
    scale: 'probability',
    async score(solutions, { signal } = {}) {
      const items = solutions.map(({ problem, steps }, i): RewardItem => {
        const record = {
          problem,
          steps: steps.map((text) => ({ text, label: null, kind: 'normal' }) as const),
        };
        const trunk = trunkOf(record);
        if (!trunk) return { sequences: [], rows: [], tokens: 0 };
        const solution = { ids: trunk.ids, ends: trunk.steps.map(({ end }) => end), labels: [] };
        return rewardItem(solution, i, verdicts, {
          ...settings,
          whole: false,
          everyStep: true,
          maxLength,
        });
      });
      const scores = await scoreItems(network, items, { microBatchTokens: TOKENS_AT_ONCE, signal });
      return scores?.map((list, i) => {
        const { rows, tokens } = items[i] as (typeof items)[number];
        const judged = rows.flatMap(({ what, step }, r): [number, number][] =>
          what === output ? [[step, probability(list[r] as number)]] : [],
        );
        return { tokens, scores: scoresByStep(solutions[i] as (typeof solutions)[number], judged) };
      });
    },
  };
}
