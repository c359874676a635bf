/** Conversations of agents that correct themselves: a wrong turn and its results are read, the turns after it are learned. */
import type { LossMask } from '../../data/corrections/layout.js';
import { conversationSegments } from '../../data/turn-segments.js';
import { badOption } from '../../files/data-error.js';
import type { Step, StepKind, StepRecord } from '../../records/record.js';
import type { Turns } from '../../records/turns.js';
import type { WeighedSequence } from '../../sequences/packed.js';
import { type SegmentSpan, segmentTokenizer } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { S3cRunConfig } from './config.js';

/**
 * Returns the record with the kinds of its turns; a solution, and turns that have kinds already, as they are. A turn that is labelled
 * wrong is `wrong`, and the first one after it that is not is its `improvement`.
 */
export function correctedTurns(record: StepRecord): StepRecord {
  if (!record.turns || record.steps.some(({ kind }) => kind !== 'normal')) return record;
  const steps = record.steps.map((step, i): Step => {
    const kind: StepKind =
      step.label === 0 ? 'wrong' : record.steps[i - 1]?.label === 0 ? 'improvement' : 'normal';
    return { ...step, kind };
  });
  return { ...record, steps };
}

/** Whether the conversation is one to learn from: its outcome is not wrong, and its last turn neither. */
export const endsRight = ({ turns, outcome, steps }: StepRecord): boolean =>
  !turns || (outcome !== 0 && steps.at(-1)?.kind !== 'wrong');

/** A tokenised conversation. */
export interface TurnSequence extends WeighedSequence {
  readonly ids: Int32Array;
  readonly weights: Float32Array;
  readonly spans: readonly (SegmentSpan & { readonly kind?: StepKind })[];
}

/** Controls that change the text of a reflection or a step, which a turn does not have apart. */
const OF_LINES: readonly string[] = ['no_reflection', 'sham', 'low_diversity'];

/** @throws DataError for settings of lines, which have no meaning for turns */
export function checkTurnSettings({
  variant,
  mask_separator,
  header,
}: Pick<S3cRunConfig['s3c'], 'variant' | 'mask_separator' | 'header'>): void {
  const refused = OF_LINES.includes(variant)
    ? `s3c.variant "${variant}" changes lines of solutions; set it to step, clean or oversample`
    : header !== undefined
      ? 's3c.header announces lines of solutions; remove it'
      : mask_separator
        ? undefined
        : 's3c.mask_separator false learns what ends a line; set it to true';
  if (refused !== undefined)
    throw badOption(`the data have conversations whose turns are steps, and ${refused}`);
}

/**
 * Makes the tokens of a conversation, each with its weight: 0 for all that is no turn, and of turns as `mask` says. The mark that ends a
 * turn belongs to it. What came back for the last turn is left out.
 *
 * @throws DataError for a conversation that the chat template does not read
 */
export function turnSequences(
  tokenizer: Tokenizer,
  { mask = 'wrong_step', wrong_step_weight: weight = 0 }: LossMask,
): (record: Pick<StepRecord, 'provenance'> & Turns) => TurnSequence {
  const tokenize = segmentTokenizer(tokenizer);
  return (record) => {
    const segments = conversationSegments(tokenizer, record, { learn: true }).slice(0, -1);
    const { ids, spans } = tokenize(segments, { specialTokens: 'none' });
    const { steps } = record;
    const firstWrong = steps.findIndex(({ kind }) => kind === 'wrong');
    const weights = new Float32Array(ids.length);
    const kinds = spans.map((span) => {
      if (span.step === undefined) return span;
      const kind = steps[span.step]?.kind ?? 'normal';
      const isBefore = mask === 'wrong_step_and_prompt' && span.step < firstWrong;
      weights.fill(isBefore ? 0 : kind === 'wrong' && mask !== 'none' ? weight : 1, span.start, span.end);
      return { ...span, kind };
    });
    return { ids, weights, spans: kinds };
  };
}
