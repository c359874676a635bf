/** Solutions with self-corrections as token sequences with a weight for each token. */
import {
  type CorrectionFormat,
  correctionTexts,
  type LossMask,
  type WeighedText,
} from '../../data/corrections/layout.js';
import type { SolvingPrompt } from '../../generate/solving-prompt.js';
import { solvingPrompt } from '../../generate/solving-prompt.js';
import type { StepRecord } from '../../records/record.js';
import type { WeighedSequence } from '../../sequences/packed.js';
import { replyEnd } from '../../tokenizer/reply-end.js';
import type { SegmentSpan, TokenizedSequence } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { turnSequences } from './turns.js';

export interface CorrectionSequenceOptions {
  /** The text of problems and steps, as section `format` of the configuration says. */
  readonly format: CorrectionFormat & {
    readonly template?: string | undefined;
    readonly chat?: boolean | 'auto' | undefined;
  };
  readonly mask?: LossMask & { readonly normalise?: 'token' | 'example' | undefined };
}

/** A tokenised solution. */
export interface CorrectionSequence extends WeighedSequence {
  readonly ids: Int32Array;
  readonly weights: Float32Array;
  readonly spans: readonly (SegmentSpan & Partial<Pick<WeighedText, 'kind'>>)[];
}

/** The prompt of a problem: that of `steptrain eval solve` with the same template. */
export function correctionPrompt(
  tokenizer: Tokenizer,
  { template, chat = 'auto' }: CorrectionSequenceOptions['format'],
): SolvingPrompt {
  return solvingPrompt(tokenizer, { template, ...(chat === 'auto' ? {} : { chat }) });
}

/** Text before the first step: a space after a text prompt that does not end in white space. */
export function promptLead({ chat, template }: SolvingPrompt): string {
  return chat || /\s$/.test(template) ? '' : ' ';
}

/**
 * A function from a record to its tokens: prompt, steps, end of the reply, with the weight of each as a target. Every piece of
 * `correctionTexts` is tokenised on its own. Of a conversation the turns are the steps, and its own messages the prompt.
 *
 * @throws DataError for a format or mask that cannot be used, and a conversation that the chat template does not read
 */
export function correctionTokenizer(
  tokenizer: Tokenizer,
  { format, mask = {} }: CorrectionSequenceOptions,
): (record: StepRecord) => CorrectionSequence {
  const ofTurns = turnSequences(tokenizer, mask);
  const ofLines = lineSequences(tokenizer, format, mask);
  return (record) => {
    const sequence = record.turns ? ofTurns(record) : ofLines(record);
    return mask.normalise === 'example' ? { ...sequence, weights: ofSum1(sequence.weights) } : sequence;
  };
}

/** The weights divided by their sum; none where all are 0. */
function ofSum1(weights: Float32Array): Float32Array {
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return sum > 0 ? weights.map((weight) => weight / sum) : weights;
}

function lineSequences(
  tokenizer: Tokenizer,
  format: CorrectionSequenceOptions['format'],
  mask: LossMask,
): (record: Pick<StepRecord, 'problem' | 'steps'>) => CorrectionSequence {
  const prompt = correctionPrompt(tokenizer, format);
  const lead = promptLead(prompt);
  const endId = prompt.chat ? replyEnd(tokenizer).id : tokenizer.eosId;
  return ({ problem, steps }) => {
    const asked = prompt.tokens(problem);
    const texts = correctionTexts({ steps }, format, mask);
    const pieces = texts.map(({ text }, i) =>
      tokenizer.encode(i === 0 ? lead + text : text, { continuation: true }),
    );
    const length =
      asked.length + pieces.reduce((sum, piece) => sum + piece.length, 0) + (endId === undefined ? 0 : 1);
    const ids = new Int32Array(length);
    const weights = new Float32Array(length);
    ids.set(asked);
    const spans: CorrectionSequence['spans'][number][] = [{ role: 'prompt', start: 0, end: asked.length }];
    let start = asked.length;
    for (const [i, { step, kind, weight }] of texts.entries()) {
      const piece = pieces[i] as readonly number[];
      const end = start + piece.length;
      ids.set(piece, start);
      weights.fill(weight, start, end);
      spans.push({ role: 'step', step, kind, start, end });
      start = end;
    }
    if (endId !== undefined) {
      ids[start] = endId;
      weights[start] = 1;
      spans.push({ role: 'end', start, end: start + 1 });
    }
    return { ids, weights, spans };
  };
}

/** The sequence as `data preview` shows it: the loss mask is 1 for every token with a weight above 0. */
export function asTokenized({ ids, weights, spans }: CorrectionSequence): TokenizedSequence {
  return { ids, lossMask: Uint8Array.from(weights, (weight) => (weight > 0 ? 1 : 0)), spans, steps: [] };
}
