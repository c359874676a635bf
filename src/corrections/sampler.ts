/** Steps and continuations as texts, drawn from the model whose errors are to be corrected. */
import type { SampleSource } from '../generate/sample-source.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

export interface DrawSettings {
  readonly temperature: number;
  readonly top_p: number;
  readonly max_new_tokens: number;
}

/** The beginning of a solution. */
export interface Prefix {
  readonly problem: string;
  readonly steps: readonly string[];
  /** Keys the random numbers of what follows; another for every prefix of a run. */
  readonly id: number;
}

export interface StepSamplerOptions {
  readonly source: SampleSource;
  readonly tokenizer: Tokenizer;
  /** Tokens of a problem as it is asked, and what stands before the first step. */
  readonly prompt: { tokens(problem: string): readonly number[]; readonly lead: string };
  readonly separator: string;
  readonly seed: number;
  /** A prefix of so many tokens leaves no room to go on. */
  readonly maxLength: number;
}

/** What followed a prefix. */
export interface Continuation {
  readonly text: string;
  /** Whether it ended by itself, not at the most tokens. */
  readonly ended: boolean;
  readonly tokens: number;
}

/** Rounds of one run, which share a seed and not its random numbers. */
export type DrawRound = 'step' | 'wrong' | 'right' | 'tree';
const ROUNDS: readonly DrawRound[] = ['step', 'wrong', 'right', 'tree'];

/** Tokens before a sample that its text is decoded with: some tokenizers change the beginning of a text. */
const CONTEXT = 4;

export class StepSampler {
  /** Tokens drawn so far. */
  tokens = 0;

  constructor(private readonly options: StepSamplerOptions) {}

  get separator(): string {
    return this.options.separator;
  }

  /** By prefix `n` next steps, up to the separator; undefined if the signal stopped it. */
  steps(
    prefixes: readonly Prefix[],
    n: number,
    settings: DrawSettings,
    signal?: AbortSignal,
    round: DrawRound = 'step',
  ): Promise<readonly (readonly Continuation[])[] | undefined> {
    return this.draw(prefixes, n, settings, [this.options.separator], round, signal);
  }

  /** By prefix `n` continuations to the end of the solution; undefined if the signal stopped it. */
  continuations(
    prefixes: readonly Prefix[],
    n: number,
    settings: DrawSettings,
    round: DrawRound,
    signal?: AbortSignal,
  ): Promise<readonly (readonly Continuation[])[] | undefined> {
    return this.draw(prefixes, n, settings, [], round, signal);
  }

  /** Tokens of a prefix: every step tokenised on its own, as in training. */
  ids({ problem, steps }: Pick<Prefix, 'problem' | 'steps'>): number[] {
    const { tokenizer, prompt, separator } = this.options;
    const pieces = steps.map((step, i) =>
      tokenizer.encode(`${i === 0 ? prompt.lead : ''}${step}${separator}`, { continuation: true }),
    );
    return [...prompt.tokens(problem), ...pieces.flat()];
  }

  /** The steps of a text. */
  split(text: string): string[] {
    return text
      .split(this.options.separator)
      .map((step) => step.trim())
      .filter((step) => step !== '');
  }

  private async draw(
    prefixes: readonly Prefix[],
    n: number,
    { temperature, top_p: topP, max_new_tokens: most }: DrawSettings,
    stop: readonly string[],
    round: DrawRound,
    signal: AbortSignal | undefined,
  ): Promise<readonly (readonly Continuation[])[] | undefined> {
    const { source, tokenizer, seed, maxLength } = this.options;
    const all = prefixes.map((prefix) => ({ prefix, ids: this.ids(prefix) }));
    // A prefix that leaves no room has no continuation.
    const fitting = all.filter(({ ids }) => ids.length < maxLength);
    if (fitting.length === 0) return prefixes.map(() => []);
    const samples = await source.sample(
      fitting.map(({ ids }) => ids),
      {
        n,
        temperature,
        topP,
        maxNewTokens: most,
        stop,
        seed,
        iteration: ROUNDS.indexOf(round),
        promptIds: fitting.map(({ prefix }) => prefix.id),
        ...(signal ? { signal } : {}),
      },
    );
    if (samples === undefined) return undefined;
    const texts = new Map(
      fitting.map(({ prefix, ids }, i) => {
        const context = ids.slice(-CONTEXT);
        const before = tokenizer.decode(context, { skipSpecialTokens: true });
        const drawn = (samples[i] ?? []).map(({ tokens, finishReason }): Continuation => {
          this.tokens += tokens.length;
          const whole = tokenizer.decode([...context, ...tokens], { skipSpecialTokens: true });
          const text = whole.slice(before.length);
          const cut = stop.map((each) => text.indexOf(each)).find((at) => at >= 0);
          return {
            text: cut === undefined ? text : text.slice(0, cut),
            ended: finishReason === 'stop',
            tokens: tokens.length,
          };
        });
        return [prefix, drawn] as const;
      }),
    );
    return prefixes.map((prefix) => texts.get(prefix) ?? []);
  }
}
