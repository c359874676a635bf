/** Penalties for tokens that already occur, with the definitions of vLLM and OpenAI. */

export interface Penalties {
  /** Taken once from the logit of each token that was drawn. */
  readonly presence: number;
  /** Taken as often as it was drawn. */
  readonly frequency: number;
  /** Logits of tokens of the prompt and of drawn ones are divided by it where they are positive, else multiplied. */
  readonly repetition: number;
}

/** Additions to the logits of tokens, each token once. */
export interface TokenBiases {
  readonly tokens: Int32Array;
  readonly values: Float32Array;
  /** Repetition penalties by token, and the part of `values` that is added before them. */
  readonly factors?: Float32Array;
  readonly base?: Float32Array;
}

/** The tokens that the penalties of a sample count. */
export class SeenTokens {
  private readonly drawn = new Map<number, number>();
  private readonly repeated: Set<number>;

  constructor(
    private readonly penalties: Penalties,
    prompt: readonly number[],
  ) {
    this.repeated = new Set(penalties.repetition === 1 ? [] : prompt);
  }

  push(token: number): void {
    this.drawn.set(token, (this.drawn.get(token) ?? 0) + 1);
    if (this.penalties.repetition !== 1) this.repeated.add(token);
  }

  /** The `fixed` biases, which come first, with the penalties added. */
  biases(fixed: TokenBiases): TokenBiases {
    const { presence, frequency, repetition } = this.penalties;
    const given = new Map(Array.from(fixed.tokens, (token, i) => [token, fixed.values[i] as number]));
    const tokens = Int32Array.from(new Set([...given.keys(), ...this.drawn.keys(), ...this.repeated]));
    const additive = (token: number) => {
      const count = this.drawn.get(token) ?? 0;
      return count === 0 ? 0 : -(presence + frequency * count);
    };
    const base = (token: number) => given.get(token) ?? 0;
    return {
      tokens,
      values: Float32Array.from(tokens, (token) => base(token) + additive(token)),
      factors: Float32Array.from(tokens, (token) => (this.repeated.has(token) ? repetition : 1)),
      base: Float32Array.from(tokens, base),
    };
  }
}
