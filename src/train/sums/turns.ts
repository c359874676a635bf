/** Work that all processes of a job do one after the other in the same order, each as soon as it can. */
interface Turn {
  readonly layer: number;
  readonly begin: Promise<() => Promise<void>>;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Turns in the order of a backward pass, from the last layer to the first, then in the order in which they were taken.
 * All are taken at once, before anything is waited for. Where one fails, all later ones fail.
 */
export class Turns {
  private readonly turns: Turn[] = [];

  constructor() {
    queueMicrotask(() => this.run());
  }

  /** @returns a function that takes the work of this turn, once it can be done, and resolves when it is done */
  take(layer: number): (work: () => Promise<void>) => Promise<void> {
    let tell: (work: () => Promise<void>) => void = () => {};
    const begin = new Promise<() => Promise<void>>((resolve) => {
      tell = resolve;
    });
    const done = new Promise<void>((resolve, reject) => {
      this.turns.push({ layer, begin, resolve, reject });
    });
    done.catch(() => {}); // whoever waits for it hears of it
    return (work) => {
      tell(work);
      return done;
    };
  }

  private async run(): Promise<void> {
    const left = [...this.turns].sort((a, b) => b.layer - a.layer);
    try {
      for (let turn = left[0]; turn; turn = left[0]) {
        await (await turn.begin)();
        turn.resolve();
        left.shift();
      }
    } catch (error) {
      for (const { reject } of left) reject(error);
    }
  }
}
