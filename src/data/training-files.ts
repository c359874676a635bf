/** One of several files of training data. */
export interface TrainingFile {
  readonly path: string;
  /** How often each of its training solutions stands in the training part, on average. Default 1. */
  readonly weight?: number | undefined;
  /** In place of a weight: its part of the training solutions, beside the shares of the other files. */
  readonly share?: number | undefined;
}

/** `data.train` as a configuration may have it. */
export type TrainingData = string | readonly (string | TrainingFile)[];

/** The files in order; a path alone has neither weight nor share. */
export function trainingFiles(train: TrainingData | undefined): readonly TrainingFile[] {
  if (train === undefined) return [];
  return (typeof train === 'string' ? [train] : train).map((file) =>
    typeof file === 'string' ? { path: file } : file,
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

/**
 * How many solutions each file gives, of `counts`, so that the mixture has the `shares` and is as large as it can be while no
 * solution is taken twice. Shares are relative.
 */
export function countsByShare(shares: readonly number[], counts: readonly number[]): number[] {
  const unit = Math.min(...shares.map((share, i) => (counts[i] as number) / share));
  return shares.map((share) => Math.round(share * unit));
}

/** How often a solution stands in the training part: ⌊weight⌋ or once more, as its `rank` in [0, 1) says. */
export function copiesOf(weight: number, rank: number): number {
  const whole = Math.floor(weight);
  return whole + (rank < weight - whole ? 1 : 0);
}
