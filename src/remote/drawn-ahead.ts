/** Rounds of samples that servers draw while the caller learns: one after the other, in the order in which they are begun. */
import type { SampleSource, SourceSample } from '../generate/sample-source.js';

type Round = Awaited<ReturnType<SampleSource['sample']>>;

export class DrawnAhead {
  private readonly rounds = new Map<number, Promise<Round>>();
  private readonly ended = new AbortController();
  private last: Promise<unknown> = Promise.resolve();

  /** @param draw is called when the rounds before it are done; ends where the signal is aborted */
  begin(iteration: number, draw: (signal: AbortSignal) => Promise<Round>): void {
    const round = this.last.then(() => (this.ended.signal.aborted ? undefined : draw(this.ended.signal)));
    // Whoever takes the round hears of it; those after it are tried all the same.
    this.last = round.catch(() => {});
    this.rounds.set(iteration, round);
  }

  /** The samples of a round that was begun, once; undefined where it was not. */
  take(
    iteration: number,
    { signal, onSample }: Pick<Parameters<SampleSource['sample']>[1], 'signal' | 'onSample'>,
  ): Promise<Round> | undefined {
    const round = this.rounds.get(iteration);
    if (!round) return undefined;
    this.rounds.delete(iteration);
    return untilAborted(round, signal).then((samples) => {
      samples?.forEach((list, prompt) => {
        list.forEach((sample: SourceSample, i) => {
          onSample?.(prompt, i, sample);
        });
      });
      return samples;
    });
  }

  /** Stops drawing. Resolves when nothing is being drawn any more. */
  async end(): Promise<void> {
    this.ended.abort();
    await this.last;
  }
}

async function untilAborted(round: Promise<Round>, signal: AbortSignal | undefined): Promise<Round> {
  if (!signal) return round;
  if (signal.aborted) return undefined;
  let stop: () => void = () => {};
  const aborted = new Promise<undefined>((resolve) => {
    stop = () => resolve(undefined);
    signal.addEventListener('abort', stop);
  });
  try {
    return await Promise.race([round, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
