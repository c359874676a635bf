/** A running request: its events as they come, or all samples at the end. */
import { StepTrainError } from '../native/errors.js';
import type { GeneratedToken, Sample, SampleRow } from './rows/sample-row.js';
import type { GenerationSnapshot, SavedOptions } from './snapshot.js';

/** Iteration gives the tokens of all samples from now on, as they come; leaving the loop aborts the rest. */
export interface Generation extends AsyncIterable<GeneratedToken> {
  /** Samples by prompt and number, when all have ended. Rejects where the device fails or the generator is disposed. */
  readonly samples: Promise<Sample[][]>;
  /** Everything that `Generator.resume` needs to continue elsewhere. */
  snapshot(): GenerationSnapshot;
  /** Ends all samples after the current step with their tokens so far. */
  abort(): void;
}

/** The generator's side of a request. */
export class RunningGeneration implements Generation {
  readonly samples: Promise<Sample[][]>;
  private readonly events: GeneratedToken[] = [];
  private resolve: (samples: Sample[][]) => void = () => {};
  private reject: (error: unknown) => void = () => {};
  private wake: () => void = () => {};
  private followed = false;
  private failure: { readonly error: unknown } | undefined;
  private aborted = false;

  constructor(
    /** Rows by prompt and number. */
    readonly rows: readonly (readonly SampleRow[])[],
    private readonly prompts: readonly (readonly number[])[],
    private readonly options: SavedOptions,
    private readonly onSample?: (prompt: number, sample: number, ended: Sample) => void,
  ) {
    this.samples = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // The iteration reports a failure, so it need not be unhandled here.
    this.samples.catch(() => {});
  }

  abort(): void {
    this.aborted = true;
  }

  get isAborted(): boolean {
    return this.aborted;
  }

  snapshot(): GenerationSnapshot {
    const samples = this.rows.map((samples) => samples.map((row) => row.save()));
    return { prompts: this.prompts, options: this.options, samples };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<GeneratedToken> {
    if (this.followed)
      throw new StepTrainError(
        'E_STATE',
        'generate: one loop at a time takes the tokens of a request; await its samples in the others',
      );
    this.followed = true;
    try {
      for (;;) {
        yield* this.events.splice(0);
        if (this.failure) throw this.failure.error;
        if (this.isDone && this.events.length === 0) return;
        if (this.events.length === 0)
          await new Promise<void>((resolve) => {
            this.wake = resolve;
          });
      }
    } finally {
      this.followed = false;
      this.abort();
    }
  }

  /** Adds an event. */
  publish(event: GeneratedToken): void {
    if (this.followed) this.events.push(event);
  }

  /** A row has come to its own end. */
  ended(row: SampleRow): void {
    if (row.finishReason !== 'error') this.onSample?.(row.promptIndex, row.sample, row.result());
  }

  /** The end of a step. */
  settle(): void {
    if (this.isDone) this.resolve(this.rows.map((samples) => samples.map((row) => row.result())));
    this.wake();
  }

  /** Ends the events. */
  fail(error: unknown): void {
    this.failure = { error };
    this.reject(error);
    this.wake();
  }

  get isDone(): boolean {
    return this.rows.every((samples) => samples.every(({ finishReason }) => finishReason !== undefined));
  }
}
