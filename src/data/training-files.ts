/** One of several files of training data. */
export interface TrainingFile {
  readonly path: string;
  /** Average number of copies of each of its training solutions. Default 1. */
  readonly weight?: number | undefined;
  /** Share of the training solutions, relative to the shares of the other files; excludes `weight`. */
  readonly share?: number | undefined;
}

/** `data.train` in a configuration. */
export type TrainingData = string | readonly (string | TrainingFile)[];

/** The files in order; a path alone has neither weight nor share. */
export function trainingFiles(train: TrainingData | undefined): readonly TrainingFile[] {
  if (train === undefined) return [];
  return (typeof train === 'string' ? [train] : train).map((file) =>
    typeof file === 'string' ? { path: file } : file,
  );
}

/** Describes the training data in messages. */
export function describeTraining({ train }: { readonly train?: TrainingData | undefined }): string {
  return (
    trainingFiles(train)
      .map(({ path }) => path)
      .join(', ') || 'the generator'
  );
}

/**
 * The number of solutions from each file, of `counts`, that gives the largest mixture with the `shares` in which no
 * solution is taken twice. Shares are relative.
 */
export function countsByShare(shares: readonly number[], counts: readonly number[]): number[] {
  const unit = Math.min(...shares.map((share, i) => (counts[i] as number) / share));
  return shares.map((share) => Math.round(share * unit));
}

/** The number of copies of a solution in the training part: ⌊weight⌋ or one more, by its `rank` in [0, 1). */
export function copiesOf(weight: number, rank: number): number {
  const whole = Math.floor(weight);
  return whole + (rank < weight - whole ? 1 : 0);
}
