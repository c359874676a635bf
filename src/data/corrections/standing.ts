/** Which steps of a solution that corrects itself stand in the end. */
import { type CorrectionFormat, correctionWriter, type WrittenStep } from './layout.js';

/** What a correction takes back: the last step, or, as instance-level corrections mean it, all steps so far. */
export type CorrectionScope = 'step' | 'solution';

/** How the corrections of a solution are read. */
export interface CorrectionReading {
  /** The words of reflections and improvements. Default: those of `format` in a recipe. */
  readonly format?: CorrectionFormat | undefined;
  /** Default `step`. */
  readonly scope?: CorrectionScope | undefined;
}

/** Indices of the steps that were not taken back, improvements among them, reflections not. */
export function standingSteps(
  steps: readonly Pick<WrittenStep, 'kind'>[],
  scope: CorrectionScope = 'step',
): number[] {
  let standing: number[] = [];
  for (const [i, { kind }] of steps.entries()) {
    if (kind === 'wrong' && scope === 'solution') standing = [];
    if (kind === 'normal' || kind === 'improvement') standing.push(i);
  }
  return standing;
}

/** A step that stands: its place among all steps, and its text without the words around an improvement. */
export interface StandingStep {
  readonly at: number;
  readonly text: string;
}

/** Those of `steps`, of which none is taken back where `reading` is undefined. @throws DataError for a format that is none */
export function readStanding(
  steps: readonly string[],
  reading: CorrectionReading | undefined,
): StandingStep[] {
  if (!reading) return steps.map((text, at) => ({ at, text }));
  const read = correctionWriter(reading.format).read(steps);
  return standingSteps(read, reading.scope).map((at) => ({ at, text: (read[at] as WrittenStep).text }));
}
