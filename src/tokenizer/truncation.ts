import type { SegmentSpan, StepSpan, TokenizedSequence } from './segments.js';

/** What length limits did to a set of sequences. Nothing is cut without being counted here. */
export class LengthReport {
  /** Sequences that fit, or were cut and still hold something to learn. */
  kept = 0;
  /** Kept sequences that lost their end. */
  cut = 0;
  /** Steps whose label went with their last token. */
  stepsCut = 0;
  tokensCut = 0;
  /** Sequences left out, by reason. */
  readonly dropped = new Map<string, number>();

  drop(reason: string): void {
    this.dropped.set(reason, (this.dropped.get(reason) ?? 0) + 1);
  }
}

/**
 * Holds a sequence to `maxLength` tokens.
 *
 * @param onTooLong `cut`: the sequence ends with its last step or segment that fits whole, and steps behind it lose
 *   their labels; `drop`: a longer sequence is left out
 * @returns undefined where the sequence is left out: it is too long (`too_long`), its prompt alone is
 *   (`prompt_too_long`), or the cut leaves nothing to learn (`nothing_left_to_learn`); the report counts which
 */
export function holdToLength(
  sequence: TokenizedSequence,
  maxLength: number,
  onTooLong: 'cut' | 'drop',
  report: LengthReport,
): TokenizedSequence | undefined {
  if (sequence.ids.length <= maxLength) {
    report.kept++;
    return sequence;
  }
  const end = lastBorder(sequence, maxLength);
  const reason = dropReason(sequence, end, onTooLong);
  if (reason !== undefined) {
    report.drop(reason);
    return undefined;
  }
  const steps = sequence.steps.filter((step) => step.end <= end);
  report.kept++;
  report.cut++;
  report.tokensCut += sequence.ids.length - end;
  report.stepsCut += labelled(sequence.steps) - labelled(steps);
  return {
    ids: sequence.ids.slice(0, end),
    lossMask: sequence.lossMask.slice(0, end),
    spans: sequence.spans.filter((span) => span.end <= end),
    steps,
  };
}

/** The last place at or before `maxLength` where a segment ends and no step goes on. */
function lastBorder({ spans, steps }: TokenizedSequence, maxLength: number): number {
  const isInsideStep = (at: number): boolean => steps.some((step) => step.start < at && at < step.end);
  return spans.reduce(
    (best, { end }) => (end <= maxLength && !isInsideStep(end) ? Math.max(best, end) : best),
    0,
  );
}

function dropReason(sequence: TokenizedSequence, end: number, onTooLong: 'cut' | 'drop'): string | undefined {
  if (end < promptEnd(sequence.spans)) return 'prompt_too_long';
  if (onTooLong === 'drop') return 'too_long';
  return sequence.lossMask.subarray(0, end).includes(1) ? undefined : 'nothing_left_to_learn';
}

/** Where the leading prompt segments end. */
function promptEnd(spans: readonly SegmentSpan[]): number {
  const response = spans.find((span) => span.role !== 'prompt');
  return response?.start ?? spans.at(-1)?.end ?? 0;
}

function labelled(steps: readonly StepSpan[]): number {
  return steps.filter((step) => step.label !== null).length;
}
