/** Share below which one of two classes is rare: answering "right" to every step then pays off, and defaults differ. */
const RARE_CLASS = 0.25;

export interface ClassCounts {
  readonly positive: number;
  readonly negative: number;
}

/** Whether both classes occur, and one of them has a share below {@link RARE_CLASS}. */
export function hasRareClass({ positive, negative }: ClassCounts): boolean {
  const rarer = Math.min(positive, negative);
  return rarer > 0 && rarer < RARE_CLASS * (positive + negative);
}

export const CLASS_WEIGHTS = ['auto', 'none', 'balanced'] as const;
export type ClassWeight = (typeof CLASS_WEIGHTS)[number];

/** Whether both classes weigh the same together. */
export function weighsClasses(weight: ClassWeight, counts: ClassCounts): boolean {
  return weight === 'auto' ? hasRareClass(counts) : weight === 'balanced';
}

/** The measures on the validation steps that select the parameters that a stage keeps. */
export const SELECTIONS = ['f1_macro', 'auc', 'best_f1_macro'] as const;
export type Selection = (typeof SELECTIONS)[number];

/**
 * The measure to select by. Where one class is rare, `auto` selects by AUC: at a fixed threshold the F1 of few wrong
 * steps is mostly noise.
 */
export function selectionOf(wanted: 'auto' | Selection, counts: ClassCounts): Selection {
  if (wanted !== 'auto') return wanted;
  return hasRareClass(counts) ? 'auc' : 'f1_macro';
}

/** Whether the threshold is chosen on the validation steps. */
export function choosesThreshold(
  threshold: 'auto' | 'validation' | 'greedy' | number,
  counts: ClassCounts,
): boolean {
  return threshold === 'validation' || (threshold === 'auto' && hasRareClass(counts));
}
