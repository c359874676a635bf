/** Finds the steps of a self-correcting solution that stand in the end. */
import { type CorrectionFormat, correctionWriter, type WrittenStep } from './layout.js';

/** Scope of a correction: it takes back the last step, or, as instance-level corrections mean it, all steps so far. */
export type CorrectionScope = 'step' | 'solution';

/** Options for reading the corrections of a solution. */
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

/** The steps that stand; all of `steps` where `reading` is undefined. @throws DataError for an invalid format */
export function readStanding(
  steps: readonly string[],
  reading: CorrectionReading | undefined,
): StandingStep[] {
  if (!reading) return steps.map((text, at) => ({ at, text }));
  const read = correctionWriter(reading.format).read(steps);
  return standingSteps(read, reading.scope).map((at) => ({ at, text: (read[at] as WrittenStep).text }));
}
