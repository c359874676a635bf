/** How text becomes tokens and back. Loaded models and the built-in byte tokenizer share this interface. */
export interface Tokenizer {
  /** One more than the largest id; a model's embedding may have more rows. */
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  readonly padId: number | undefined;
  /** Ids that `encode` puts before and after a text when special tokens are added. */
  readonly prefixIds: readonly number[];
  readonly suffixIds: readonly number[];
  readonly hasChatTemplate: boolean;

  /**
   * The ids of a text. The text of a special token becomes that token.
   *
   * @throws DataError for a character that the vocabulary cannot express
   */
  encode(text: string, options?: EncodeOptions): number[];

  /**
   * The text of ids; nothing is tidied up, so that `decode(encode(text))` is the text (in the tokenizer's normal form).
   *
   * @throws DataError for an id outside the vocabulary
   */
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string;

  /**
   * The bytes of UTF-8 that a token adds to a text that goes on. Of all tokens of a text together they are that text, but for
   * a space that some tokenizers take from its beginning.
   *
   * @throws DataError for an id outside the vocabulary
   */
  tokenBytes(id: number): Uint8Array;

  /** Whether `decode` leaves the token out with `skipSpecialTokens`. */
  isSpecial(id: number): boolean;

  /**
   * A conversation as the model's chat template writes it. The result holds every special token that the model
   * expects: encode it with `addSpecialTokens: false`.
   *
   * @throws DataError where there is no template or the template refuses the messages
   */
  applyChatTemplate(messages: readonly ChatMessage[], options?: ChatTemplateOptions): string;

  /** Writes the tokenizer's files into a model directory. */
  save(directory: string): Promise<void>;
}

export interface EncodeOptions {
  /** Add what the tokenizer adds by itself, such as a token that begins every text. Default true. */
  readonly addSpecialTokens?: boolean;
  /** The text continues another one: no space is put before it. Default false. Implies no special tokens. */
  readonly continuation?: boolean;
}

export interface DecodeOptions {
  /** Leave special tokens out of the text. Default false. */
  readonly skipSpecialTokens?: boolean;
}

/** One message; templates may read further keys such as `tool_calls`. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: unknown;
  readonly [key: string]: unknown;
}

export interface ChatTemplateOptions {
  /** End with the opening of the assistant's turn. Default false. */
  readonly addGenerationPrompt?: boolean;
  /** Function descriptions in JSON schema, for templates that know tools. */
  readonly tools?: readonly unknown[];
  /** Which of several named templates. Default `tool_use` where tools are given and it exists, else `default`. */
  readonly template?: string;
  /** Further variables for the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}
