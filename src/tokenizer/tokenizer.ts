/** Text to tokens and back; implemented by loaded tokenizers and the built-in byte tokenizer. */
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
  /** Tokens hold numbers with their last digit first; texts do not. Absent: they agree. */
  readonly reversesDigits?: boolean;

  /**
   * The ids of a text. The text of a special token becomes that token.
   *
   * @throws DataError for a character that the vocabulary cannot express
   */
  encode(text: string, options?: EncodeOptions): number[];

  /**
   * The text of ids, without clean-up, so that `decode(encode(text))` is the text (in the tokenizer's normal form).
   *
   * @throws DataError for an id outside the vocabulary
   */
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string;

  /**
   * The UTF-8 bytes of a token inside a text. The bytes of all tokens of a text are that text, except for a space that
   * some tokenizers remove from its beginning, and for the order of digits where it `reversesDigits`. None for an id
   * outside the vocabulary: a model may have more ids.
   */
  tokenBytes(id: number): Uint8Array;

  /** Whether `decode` with `skipSpecialTokens` leaves the token out. */
  isSpecial(id: number): boolean;

  /**
   * A conversation rendered by the model's chat template. The result contains every special token that the model expects:
   * encode it with `addSpecialTokens: false`.
   *
   * @throws DataError if there is no template or the template rejects the messages
   */
  applyChatTemplate(messages: readonly ChatMessage[], options?: ChatTemplateOptions): string;

  /**
   * Whether the chat template names a variable, or a key or role of messages, such as `tools`. Absent: there is no template.
   *
   * @param as `variable`: not as a key or role
   */
  templateReads?(name: string, as?: 'variable'): boolean;

  /** Writes the tokenizer's files into a model directory. */
  save(directory: string): Promise<void>;
}

export interface EncodeOptions {
  /** Add the tokenizer's special tokens, such as a start token. Default true. */
  readonly addSpecialTokens?: boolean | undefined;
  /** The text continues another one: no space is put before it. Default false. Implies no special tokens. */
  readonly continuation?: boolean | undefined;
}

export interface DecodeOptions {
  /** Leave special tokens out of the text. Default false. */
  readonly skipSpecialTokens?: boolean | undefined;
}

/** One message; templates may read further keys such as `tool_calls`. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: unknown;
  readonly [key: string]: unknown;
}

export interface ChatTemplateOptions {
  /** End with the opening of the assistant's turn. Default false. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** End with the text of the last message, so that the model goes on with it. Default false. */
  readonly continueFinalMessage?: boolean | undefined;
  /** Function descriptions in JSON schema, for templates that support tools. */
  readonly tools?: readonly unknown[] | undefined;
  /** The name of one of several templates. Default `tool_use` if tools are given and it exists, else `default`. */
  readonly template?: string | undefined;
  /** Further variables for the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** A message that the template leaves out is no error. Default false. */
  readonly mayLeaveOut?: boolean | undefined;
}
