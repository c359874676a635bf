/** A request under way: what came so far, as it comes, or all of it in the end. */
import type { GeneratedToken, Sample, SampleRow } from './sample-row.js';
import type { GenerationSnapshot, SavedOptions } from './snapshot.js';

/** A loop over it gives the tokens from now on, of all samples as they come; leaving the loop aborts what is left. */
export interface Generation extends AsyncIterable<GeneratedToken> {
  /** By prompt and sample, when all have ended. Rejects where the device fails or the generator is disposed. */
  readonly samples: Promise<Sample[][]>;
  /** Everything that is needed to go on elsewhere, with `Generator.resume`. */
  snapshot(): GenerationSnapshot;
  /** Ends all samples after the step that is under way, with what they have. */
  abort(): void;
}

/** What the generator sees of it. */
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
    /** By prompt and sample. */
    readonly rows: readonly (readonly SampleRow[])[],
    private readonly prompts: readonly (readonly number[])[],
    private readonly options: SavedOptions,
  ) {
    this.samples = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // Who follows the tokens hears of a failure there.
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

  /** A token that came. */
  publish(event: GeneratedToken): void {
    if (this.followed) this.events.push(event);
  }

  /** The end of a step. */
  settle(): void {
    if (this.isDone) this.resolve(this.rows.map((samples) => samples.map((row) => row.result())));
    this.wake();
  }

  /** Nothing more will come. */
  fail(error: unknown): void {
    this.failure = { error };
    this.reject(error);
    this.wake();
  }

  get isDone(): boolean {
    return this.rows.every((samples) => samples.every(({ finishReason }) => finishReason !== undefined));
  }
}
