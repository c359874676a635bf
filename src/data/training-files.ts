/** One of several files of training data. */
export interface TrainingFile {
  readonly path: string;
  /** How often each of its training solutions stands in the training part, on average. */
  readonly weight: number;
}

/** `data.train` as a configuration may have it. */
export type TrainingData = string | readonly (string | TrainingFile)[];

/** The files in order; a path alone has weight 1. */
export function trainingFiles(train: TrainingData | undefined): readonly TrainingFile[] {
  if (train === undefined) return [];
  return (typeof train === 'string' ? [train] : train).map((file) =>
    typeof file === 'string' ? { path: file, weight: 1 } : file,
  );
}

/** Where training data comes from, for messages. */
export function describeTraining({ train }: { readonly train?: TrainingData | undefined }): string {
  return (
    trainingFiles(train)
      .map(({ path }) => path)
      .join(', ') || 'the generator'
  );
}

/** How often a solution stands in the training part: ⌊weight⌋ or once more, as its `rank` in [0, 1) says. */
export function copiesOf(weight: number, rank: number): number {
  const whole = Math.floor(weight);
  return whole + (rank < weight - whole ? 1 : 0);
}
