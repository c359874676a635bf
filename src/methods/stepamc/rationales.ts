/**
 * Reasons for data without them: a model writes a reason and a verdict after each labelled step, and the reasons whose
 * verdict equals the label are kept. A guess is right half of the time, so a kept reason need not be a good one.
 */
import { reasonLine, type VerdictTokenizer } from '../../data/verdict.js';
import type { Decoder } from '../../models/decoder.js';
import { keyOfSeed, philox4x32 } from '../../random/philox.js';
import type { Step, StepRecord } from '../../records/record.js';
import { type WritingOptions, wordOf, writeVerdicts } from '../../scoring/verdict/written-verdicts.js';

export interface SampledReasonsOptions extends Omit<WritingOptions, 'tokenizer' | 'iteration' | 'promptIds'> {
  readonly tokenizer: VerdictTokenizer;
  /** Attempts at each step, at most. */
  readonly attempts: number;
  /** Tokens of a problem with its steps, reason and verdict, at most. */
  readonly maxLength: number;
}

/** Counts over labelled steps; `asked` are those that had no reason and fit into `maxLength`. */
export interface ReasonTally {
  asked: number;
  tooLong: number;
  attempts: number;
  /** Attempts whose reason did not end, or with no verdict word after it. */
  unreadable: number;
  kept: { 1: number; 0: number };
  /** Steps with that label that were asked about. */
  of: { 1: number; 0: number };
}

export const emptyTally = (): ReasonTally => ({
  asked: 0,
  tooLong: 0,
  attempts: 0,
  unreadable: 0,
  kept: { 1: 0, 0: 0 },
  of: { 1: 0, 0: 0 },
});

interface Question {
  readonly record: number;
  readonly step: number;
  readonly label: 1 | 0;
  readonly prompt: readonly number[];
  readonly id: number;
}

const REASONS = 0x4ea5;

/**
 * The records with the sampled reasons; steps with a reason of their own keep it. Draws for a record depend on `first`
 * + its index and the seed alone, not on the batch. Undefined if the signal stopped it.
 *
 * @param first index of the first record among all
 * @param tally is added to
 */
export async function withSampledReasons(
  decoder: Decoder,
  records: readonly StepRecord[],
  { tokenizer, attempts, maxLength, ...options }: SampledReasonsOptions,
  { first, tally }: { readonly first: number; readonly tally: ReasonTally },
): Promise<StepRecord[] | undefined> {
  const found = new Map<string, string>();
  let open = records.flatMap((record, i): Question[] => {
    const { trunk, verdicts, tooLong } = tokenizer.solution(record, { maxLength });
    tally.tooLong += tooLong;
    return verdicts.flatMap(({ step, at, label }) => {
      if (label === null || record.steps[step]?.rationale !== undefined) return [];
      tally.asked++;
      tally.of[label]++;
      const [id] = philox4x32([first + i, step, 0, REASONS], keyOfSeed(options.seed ?? 0));
      return [{ record: i, step, label, prompt: [...trunk.ids.slice(0, at), ...tokenizer.tailIds], id }];
    });
  });
  for (let iteration = 0; iteration < attempts && open.length > 0; iteration++) {
    const written = await writeVerdicts(
      decoder,
      open.map(({ prompt }) => prompt),
      { ...options, tokenizer, iteration, promptIds: open.map(({ id }) => id) },
    );
    if (!written) return undefined;
    open = open.filter((question, i) => {
      const { tokens, reason } = written[i] as (typeof written)[number];
      tally.attempts++;
      const word = reason === undefined ? undefined : wordOf(tokens.slice(reason), tokenizer.template);
      if (word === undefined) tally.unreadable++;
      const text = tokenizer.tokenizer.decode(tokens.slice(0, reason)).trim();
      if (word !== question.label || !isLearnable(text, tokenizer)) return true;
      tally.kept[question.label]++;
      found.set(`${question.record}/${question.step}`, text);
      return false;
    });
  }
  return records.map((record, i) => ({
    ...record,
    steps: record.steps.map((step, s): Step => {
      const rationale = found.get(`${i}/${s}`);
      return rationale === undefined ? step : { ...step, rationale };
    }),
  }));
}

/** Whether a reason is whole text that fits: the tokenizer may cut it into more tokens than were drawn. */
function isLearnable(text: string, { tokenizer, template }: VerdictTokenizer): boolean {
  if (text === '' || text.includes('\ufffd')) return false;
  return tokenizer.encode(reasonLine(text), { continuation: true }).length <= template.rationaleTokens;
}
