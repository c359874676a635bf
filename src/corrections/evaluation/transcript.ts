/** A solution that may correct itself: its standing steps, and its corrections. */
import type { CorrectionWriter, WrittenStep } from '../../data/corrections/layout.js';
import { type CorrectionScope, standingSteps } from '../../data/corrections/standing.js';

export interface Transcript {
  /**
   * The steps that stand in the end: those that were not abandoned, improvements among them. Their errors are the
   * solution's.
   */
  readonly kept: readonly string[];
  readonly corrections: readonly TranscribedCorrection[];
}

export interface TranscribedCorrection {
  /** The steps that stood before it. */
  readonly before: readonly string[];
  readonly abandoned: string;
  /** Absent where the text reflects on a step as it was, or ends. */
  readonly improvement?: string;
}

/** Corrected steps are not errors: a step that a reflection follows does not stand. */
export function transcriptOf(
  text: string,
  writer: Pick<CorrectionWriter, 'read'>,
  scope?: CorrectionScope,
): Transcript {
  const steps = writer.read(text);
  const textsOf = (of: readonly WrittenStep[]) =>
    standingSteps(of, scope).map((i) => (of[i] as WrittenStep).text);
  const corrections = steps.flatMap(({ kind, text: abandoned }, i): TranscribedCorrection[] => {
    if (kind !== 'wrong') return [];
    const next = improvementAfter(steps, i);
    const before = textsOf(steps.slice(0, i));
    return [{ before, abandoned, ...(next === undefined ? {} : { improvement: next }) }];
  });
  return { kept: textsOf(steps), corrections };
}

function improvementAfter(steps: readonly WrittenStep[], wrong: number): string | undefined {
  const next = steps.slice(wrong + 1).find(({ kind }) => kind !== 'reflection');
  return next?.kind === 'improvement' ? next.text : undefined;
}
