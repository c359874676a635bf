import { Recent } from '../native/recent.js';
import type { StepLabel } from '../records/record.js';
import type { Tokenizer } from './tokenizer.js';

/** The role of a segment. The response begins with the first segment that is not `prompt`. */
export type SegmentRole = 'prompt' | 'step' | 'verdict' | 'answer' | 'end';

/** A piece of text that is tokenised on its own, so that no token crosses its boundaries. */
export interface Segment {
  readonly text: string;
  readonly role: SegmentRole;
  /** Index of the step, from 0. Neighbouring `step` segments of one step form one span. */
  readonly step?: number;
  /** The label of that step, copied to its span. */
  readonly label?: StepLabel;
  /** Whether its tokens are learned. */
  readonly train: boolean;
  /** Tokenised as a text by itself, not as one that goes on: some tokenizers put a space before it. Default false. */
  readonly alone?: boolean;
}

/** Tokens `start` to `end` (exclusive) of a sequence come from one segment. */
export interface SegmentSpan {
  readonly role: SegmentRole;
  readonly step?: number;
  readonly start: number;
  readonly end: number;
}

/** The tokens of one step, including those that end it. */
export interface StepSpan {
  readonly step: number;
  readonly start: number;
  readonly end: number;
  readonly label: StepLabel;
}

/** A tokenised sequence of n tokens. The segment spans are in order and tile it. */
export interface TokenizedSequence {
  /** [n] */
  readonly ids: Int32Array;
  /** [n], 1 = this token is a target, predicted from those before it. */
  readonly lossMask: Uint8Array;
  readonly spans: readonly SegmentSpan[];
  readonly steps: readonly StepSpan[];
}

export interface SegmentTokenizerOptions {
  /** Max characters of cached texts, so that repeated prompts and steps are tokenised once. Default 2 Mi. */
  readonly cacheCharacters?: number;
}

export interface SequenceOptions {
  /**
   * Special tokens to add around the sequence: `both` (default), only those at the `start`, or `none` for text from a chat
   * template, which already contains them. A token that the text itself starts or ends with is never doubled. `bos`: the start
   * token that the tokenizer names, whether or not it would add it, in front of any text.
   */
  readonly specialTokens?: 'both' | 'start' | 'bos' | 'none';
}

/**
 * A function from segments to one sequence. Each segment is tokenised on its own and the results are joined, so that step
 * spans and loss masks fall on token boundaries. Added special tokens belong to the first and to the last segment; like
 * the rest of the segment they are targets if it is learned.
 */
export function segmentTokenizer(
  tokenizer: Tokenizer,
  options: SegmentTokenizerOptions = {},
): (segments: readonly Segment[], options?: SequenceOptions) => TokenizedSequence {
  const limit = options.cacheCharacters ?? 2 * 2 ** 20;
  const cacheOf = () => new Recent<string, readonly number[]>(limit / 2, (_, text) => text.length);
  const [first, others] = [cacheOf(), cacheOf()];
  const encode = (text: string, isFirst: boolean): readonly number[] =>
    isFirst
      ? first.get(text, () => tokenizer.encode(text, { addSpecialTokens: false }))
      : others.get(text, () => tokenizer.encode(text, { continuation: true }));
  return (segments, { specialTokens = 'both' } = {}) => {
    const firstText = segments.findIndex((segment) => segment.text !== '');
    const pieces: (readonly number[])[] = segments.map((segment, i) =>
      segment.text === '' ? [] : encode(segment.text, i === firstText || segment.alone === true),
    );
    if (specialTokens === 'bos') {
      const start = tokenizer.bosId === undefined ? [] : [tokenizer.bosId];
      return assemble(segments, [[...start, ...(pieces[0] ?? [])], ...pieces.slice(1)]);
    }
    if (firstText >= 0) {
      if (specialTokens !== 'none') addPrefix(pieces, firstText, tokenizer.prefixIds);
      if (specialTokens === 'both') addSuffix(pieces, tokenizer.suffixIds);
    }
    return assemble(segments, pieces);
  };
}

/** The text of tokens `start` to `end` in the context of the sequence. */
export function decodeSpan(tokenizer: Tokenizer, ids: Int32Array, start: number, end: number): string {
  // Some tokenizers drop the space in front of the first token, so the span is decoded with what precedes it.
  return tokenizer.decode(ids.subarray(0, end)).slice(tokenizer.decode(ids.subarray(0, start)).length);
}

function addPrefix(pieces: (readonly number[])[], at: number, prefix: readonly number[]): void {
  const first = pieces[at] as readonly number[];
  if (!prefix.every((id, i) => first[i] === id)) pieces[at] = [...prefix, ...first];
}

function addSuffix(pieces: (readonly number[])[], suffix: readonly number[]): void {
  const at = pieces.findLastIndex((piece) => piece.length > 0);
  if (at < 0) return;
  const last = pieces[at] as readonly number[];
  const tail = last.slice(last.length - suffix.length);
  if (tail.length !== suffix.length || !suffix.every((id, i) => tail[i] === id))
    pieces[at] = [...last, ...suffix];
}

function assemble(segments: readonly Segment[], pieces: readonly (readonly number[])[]): TokenizedSequence {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const ids = new Int32Array(length);
  const lossMask = new Uint8Array(length);
  const spans: SegmentSpan[] = [];
  const steps: StepSpan[] = [];
  let start = 0;
  for (const [i, segment] of segments.entries()) {
    const piece = pieces[i] as readonly number[];
    const end = start + piece.length;
    ids.set(piece, start);
    if (segment.train) lossMask.fill(1, start, end);
    const { role, step } = segment;
    spans.push(step === undefined ? { role, start, end } : { role, step, start, end });
    if (segment.role === 'step') addStep(steps, segment, start, end);
    start = end;
  }
  // The first token has no context to predict it from.
  if (length > 0) lossMask[0] = 0;
  return { ids, lossMask, spans, steps };
}

function addStep(steps: StepSpan[], segment: Segment, start: number, end: number): void {
  const { step } = segment;
  if (step === undefined) throw new RangeError("a segment with the role 'step' has no step number");
  const label = segment.label ?? null;
  const last = steps.at(-1);
  if (last?.step === step && last.end === start) {
    steps[steps.length - 1] = { step, start: last.start, end, label: label ?? last.label };
  } else if (steps.some((span) => span.step === step)) {
    throw new RangeError(`the segments of step ${step} do not follow one another`);
  } else {
    steps.push({ step, start, end, label });
  }
}
