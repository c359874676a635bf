/** A model of `method: implicit_prm` as scorers of steps: its log-ratios to the reference that it was trained against. */
import { type StepScorer, type StepSolution, scoresByStep } from '../../eval/step-scorer.js';
import { DataError } from '../../files/data-error.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { type OfflineItem, offlineSequence, sequenceLength } from './answers/items.js';
import { readSums } from './answers/scores.js';
import { answerTokenizer } from './answers/tokens.js';

/** A decoder and what lies on it, without dropout. */
export interface ScoredModel {
  readonly decoder: Decoder;
  readonly role: Role;
}

export interface ImplicitScorerOptions {
  readonly tokenizer: Tokenizer;
  /** As the model was trained with: `question.template` and `implicit_prm.beta` of its run. */
  readonly template: string;
  readonly beta: number;
  readonly maxLength: number;
  /** Give no score to solutions that the tokenizer cannot express, instead of an error. Default false. */
  readonly skipUnreadable?: boolean;
}

/** In logits: beta·(log-prob − reference). */
interface LogRatios {
  /** Of the whole answer, what the model was trained on; undefined where not all of it was read. */
  readonly whole: number | undefined;
  /** Of the steps that were read, from the first on. */
  readonly steps: readonly number[];
  readonly tokens: number;
}

/** Tokens of a forward; no score depends on it. */
const TOKENS_AT_ONCE = 4096;

/**
 * `probability`: σ of a step's log-ratio. `reward`: that log-ratio, the sum of the rewards of its tokens; the token that ends the
 * answer belongs to the last step, so that the steps' rewards add up to the log-odds of the outcome. `outcome`: σ of that sum, at
 * the last step alone.
 */
export function implicitScorers(
  policy: ScoredModel,
  reference: ScoredModel,
  options: ImplicitScorerOptions,
): Readonly<Record<'probability' | 'reward' | 'outcome', StepScorer>> {
  const scorer = (
    scale: StepScorer['scale'],
    scoresOf: (ratios: LogRatios, solution: StepSolution) => readonly (readonly [number, number])[],
  ): StepScorer => ({
    scale,
    async score(solutions, { signal } = {}) {
      const found = await logRatios(policy, reference, solutions, options, signal);
      return found?.map((ratios, i) => {
        const solution = solutions[i] as StepSolution;
        return { tokens: ratios.tokens, scores: scoresByStep(solution, scoresOf(ratios, solution)) };
      });
    },
  });
  return {
    probability: scorer('probability', ({ steps }) => steps.map((ratio, step) => [step, sigmoid(ratio)])),
    reward: scorer('reward', ({ steps }) => steps.map((ratio, step) => [step, ratio])),
    outcome: scorer('probability', ({ whole }, { steps }) =>
      whole === undefined ? [] : [[steps.length - 1, sigmoid(whole)]],
    ),
  };
}

/** Undefined if the signal stopped it. */
async function logRatios(
  policy: ScoredModel,
  reference: ScoredModel,
  solutions: readonly StepSolution[],
  options: ImplicitScorerOptions,
  signal: AbortSignal | undefined,
): Promise<LogRatios[] | undefined> {
  const items = itemsOf(solutions, options);
  const ratios: LogRatios[] = solutions.map(() => ({ whole: undefined, steps: [], tokens: 0 }));
  const score = async (group: readonly (typeof items)[number][]) => {
    const sequences = group.map(({ item }, i) => offlineSequence(item, i));
    const [own, theirs] = [
      await readSums(policy.decoder, policy.role, sequences),
      await readSums(reference.decoder, reference.role, sequences),
    ];
    return own.map((sums, i) =>
      sums.map((sum, span) => options.beta * (sum - (theirs[i]?.[span] as number))),
    );
  };
  const groups = groupBySize(items, ({ item }) => sequenceLength(item), TOKENS_AT_ONCE);
  const found = await overGroups(policy.decoder.device, groups, score, {
    signal,
    onGroup: (scored, group) =>
      group.forEach(({ item, at, isWhole }, i) => {
        const [whole, ...steps] = scored[i] as number[];
        ratios[at] = { whole: isWhole ? whole : undefined, steps, tokens: sequenceLength(item) };
      }),
  });
  return found && !signal?.aborted ? ratios : undefined;
}

/** What can be read of each solution, in the tokens of training; what lies beyond the longest sequence is cut off by steps. */
function itemsOf(
  solutions: readonly StepSolution[],
  { tokenizer, template, maxLength, skipUnreadable = false }: ImplicitScorerOptions,
) {
  const answers = answerTokenizer(tokenizer, template);
  return solutions.flatMap(({ problem, steps }, at) => {
    try {
      const prompt = answers.prompt({ problem });
      const own = steps.map((text) => ({ text, label: null, kind: 'normal' }) as const);
      const whole = answers.answer({}, own, { label: null });
      const read = whole.steps.filter(({ end }) => prompt.length + end <= maxLength);
      const end = read.at(-1)?.end;
      if (end === undefined) return [];
      const answer = { ...whole, ids: whole.ids.slice(0, end), steps: read };
      const item: OfflineItem = { problem: at, prompt, answers: [answer] };
      return [{ item, at, isWhole: read.length === steps.length }];
    } catch (error) {
      if (skipUnreadable && error instanceof DataError && error.kind === 'tokenizer') return [];
      throw error;
    }
  });
}

function sigmoid(logit: number): number {
  return 1 / (1 + Math.exp(-logit));
}
