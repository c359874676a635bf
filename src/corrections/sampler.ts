/** Steps and continuations as texts, drawn from the model whose errors are to be corrected. */
import type { SampleSource, SourceSample } from '../generate/sample-source.js';
import { endsInMathematics, splitOutside } from '../records/mathematics.js';
import { type Draws, drawKey } from '../run/draws.js';
import type { ProgressPart } from '../terminal/progress.js';
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
  /** Key of the random numbers; another one for every prefix of a run. */
  readonly id: number;
}

export interface StepSamplerOptions {
  readonly source: SampleSource;
  readonly tokenizer: Tokenizer;
  /** Tokens of a problem's prompt, and the text before the first step. */
  readonly prompt: { tokens(problem: string): readonly number[]; readonly lead: string };
  readonly separator: string;
  readonly seed: number;
  /** A prefix of so many tokens leaves no room to go on. */
  readonly maxLength: number;
  /** Keeps the draws of a step that was stopped. */
  readonly draws?: Draws;
}

/** A continuation of a prefix. */
export interface Continuation {
  readonly text: string;
  /** Whether it ended by itself, not at the most tokens. */
  readonly ended: boolean;
  readonly tokens: number;
}

/** Rounds of one run, which share a seed and not its random numbers. */
export type DrawRound = 'step' | 'wrong' | 'right' | 'tree';
const ROUNDS: readonly DrawRound[] = ['step', 'wrong', 'right', 'tree'];
/** Words for the items counted during each round of drawing. */
const UNITS: Readonly<Record<DrawRound, string>> = {
  step: 'candidates: sample',
  wrong: 'continuations of candidates: sample',
  right: 'continuations of right steps: sample',
  tree: 'tree: sample',
};

/** Tokens before a sample that its text is decoded with: some tokenizers change the beginning of a text. */
const CONTEXT = 4;

export class StepSampler {
  /** Tokens drawn so far. */
  tokens = 0;
  /** Hears how far a round is. */
  report: ((part: ProgressPart) => void) | undefined;

  constructor(private readonly options: StepSamplerOptions) {}

  get separator(): string {
    return this.options.separator;
  }

  /** `n` next steps for each prefix, up to the separator; undefined if the signal stopped it. */
  steps(
    prefixes: readonly Prefix[],
    n: number,
    settings: DrawSettings,
    signal?: AbortSignal,
    round: DrawRound = 'step',
  ): Promise<readonly (readonly Continuation[])[] | undefined> {
    return this.draw(prefixes, n, settings, [this.options.separator], round, signal);
  }

  /** `n` continuations of each prefix to the end of the solution; undefined if the signal stopped it. */
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

  /** The steps of a text, which is never cut inside a formula. */
  split(text: string): string[] {
    return splitOutside(text, this.options.separator)
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
    const { source, seed, maxLength, draws } = this.options;
    const all = prefixes.map((prefix) => ({ prefix, ids: this.ids(prefix) }));
    // A prefix that leaves no room has no continuation.
    const fitting = all.filter(({ ids }) => ids.length < maxLength);
    if (fitting.length === 0) return prefixes.map(() => []);
    const lists = fitting.map(({ prefix, ids }) => {
      const settings = drawKey([round, prefix.id, ids, temperature, topP, most, stop]);
      const keyOf = (sample: number) => `${settings}/${sample}`;
      const continuations = Array.from({ length: n }, (_, sample) => draws?.get(keyOf(sample)));
      return { ids, keyOf, continuations: continuations as (Continuation | undefined)[] };
    });
    const ended = lists.flatMap(({ continuations }) => continuations.filter((each) => each !== undefined));
    let done = ended.length;
    let tokens = 0;
    const tell = () => this.report?.({ unit: UNITS[round], done, total: n * lists.length, tokens });
    tell();
    const samples = await source.sample(
      lists.map(({ ids }) => ids),
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
        skip: (prompt, sample) => lists[prompt]?.continuations[sample] !== undefined,
        onSample: (prompt, sample, drawn) => {
          const { ids, keyOf, continuations } = lists[prompt] as (typeof lists)[number];
          const continuation = this.continuationOf(ids, drawn, stop);
          continuations[sample] = continuation;
          draws?.keep(keyOf(sample), continuation);
          done++;
          tokens += continuation.tokens;
          tell();
        },
      },
    );
    if (samples === undefined) return undefined;
    const texts = new Map(
      fitting.map(({ prefix, ids }, i) => {
        const drawn = Array.from({ length: n }, (_, sample) => {
          const continuation =
            lists[i]?.continuations[sample] ??
            this.continuationOf(ids, samples[i]?.[sample] as SourceSample, stop);
          this.tokens += continuation.tokens;
          return continuation;
        });
        return [prefix, drawn] as const;
      }),
    );
    return prefixes.map((prefix) => texts.get(prefix) ?? []);
  }

  /** The text that was drawn after `ids`, up to a stop text. */
  private continuationOf(
    ids: readonly number[],
    { tokens, finishReason }: Pick<SourceSample, 'tokens' | 'finishReason'>,
    stop: readonly string[],
  ): Continuation {
    const { tokenizer } = this.options;
    const context = ids.slice(-CONTEXT);
    const before = tokenizer.decode(context, { skipSpecialTokens: true });
    const whole = tokenizer.decode([...context, ...tokens], { skipSpecialTokens: true });
    const text = whole.slice(before.length);
    const cut = stop.map((each) => text.indexOf(each)).find((at) => at >= 0);
    const own = cut === undefined ? text : text.slice(0, cut);
    return {
      text: own,
      // A step is not at its end where a formula goes on in the next line.
      ended: finishReason === 'stop' && !(stop.length > 0 && endsInMathematics(own)),
      tokens: tokens.length,
    };
  }
}
