/** A model of `method: implicit_prm` as scorers of steps: its log-ratios to the reference that it was trained against. */

import type { PlacedRole } from '../../models/decoder.js';
import { groupBySize, tokensAtOnce } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { asRecord, type ReadingOptions, readable } from '../readable.js';
import {
  outcomeScores,
  type Scorer,
  type Solution,
  type SolutionScores,
  scorer,
  scoresByStep,
} from '../scorer.js';
import { probability } from '../verdict/judged.js';
import { type OfflineItem, offlineSequence, sequenceLength } from './items.js';
import { readSums } from './sums.js';
import { answerTokenizer } from './tokens.js';

export interface ImplicitScorerOptions extends Pick<ReadingOptions, 'name' | 'tokenizer' | 'skipUnreadable'> {
  /** `question.template` of the run that trained the model; `beta` is its `implicit_prm.beta`. */
  readonly template: string;
  readonly beta: number;
  readonly maxLength: number;
  /** Log-odds from which a step is right. Default 0. */
  readonly least?: number;
}

/** Log-ratios in logits: beta·(log-prob − reference). */
interface LogRatios {
  /** Log-ratio of the whole answer, which the model was trained on; undefined where not all of it was read. */
  readonly whole: number | undefined;
  /** Log-ratios of the steps that were read, from the first on. */
  readonly steps: readonly number[];
  readonly tokens: number;
}

/**
 * `probability`: σ of a step's log-ratio. `reward`: that log-ratio, the sum of the rewards of its tokens; the token that ends the
 * answer belongs to the last step, so that the steps' rewards add up to the log-odds of the outcome. `outcome`: σ of that sum, at
 * the last step alone.
 */
export function implicitScorers(
  policy: PlacedRole,
  reference: PlacedRole,
  options: ImplicitScorerOptions,
): Readonly<Record<'probability' | 'reward' | 'outcome', Scorer>> {
  const { name = 'implicit', least = 0 } = options;
  const by = (
    how: Partial<Scorer>,
    scoresOf: (ratios: LogRatios, solution: Solution) => Omit<SolutionScores, 'tokens'>,
  ) =>
    scorer({
      ...how,
      name,
      readsTurns: true,
      async score(solutions, { signal } = {}) {
        const found = await logRatios(policy, reference, solutions, options, signal);
        return found?.map((ratios, i) => ({
          tokens: ratios.tokens,
          ...scoresOf(ratios, solutions[i] as Solution),
        }));
      },
    });
  const bySteps =
    (of: (ratio: number) => number) =>
    ({ steps }: LogRatios, solution: Solution) => ({
      scores: scoresByStep(
        solution,
        steps.map((ratio, step) => [step, of(ratio)]),
      ),
    });
  return {
    probability: by({ threshold: probability(least) }, bySteps(probability)),
    reward: by(
      { scale: 'log_odds', threshold: least },
      bySteps((ratio) => ratio),
    ),
    outcome: by({ unit: 'outcome' }, ({ whole }, solution) =>
      outcomeScores(solution, whole === undefined ? null : probability(whole)),
    ),
  };
}

/** Undefined if the signal stopped it. */
async function logRatios(
  policy: PlacedRole,
  reference: PlacedRole,
  solutions: readonly Solution[],
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
  const groups = groupBySize(items, ({ item }) => sequenceLength(item), tokensAtOnce(policy.decoder, signal));
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

/** The readable part of each solution, in the tokens of training. Steps beyond the longest sequence are cut off. */
function itemsOf(
  solutions: readonly Solution[],
  { tokenizer, template, maxLength, skipUnreadable = false }: ImplicitScorerOptions,
) {
  const answers = answerTokenizer(tokenizer, template);
  return solutions.flatMap((solution, at) => {
    const { steps } = solution;
    const record = asRecord(solution);
    const read = () => ({
      prompt: answers.prompt(record),
      whole: answers.answer(record, record.steps, { label: null }),
    });
    const found = readable(read, skipUnreadable);
    const within = found?.whole.steps.filter(({ end }) => found.prompt.length + end <= maxLength) ?? [];
    const end = within.at(-1)?.end;
    if (!found || end === undefined) return [];
    const answer = { ...found.whole, ids: found.whole.ids.slice(0, end), steps: within };
    const item: OfflineItem = { problem: at, prompt: found.prompt, answers: [answer] };
    return [{ item, at, isWhole: within.length === steps.length }];
  });
}
