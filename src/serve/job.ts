/** The contents of a request for samples, and the parts of its answer. */
import type { FinishReason, Sample } from '../generate/rows/sample-row.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { GenerationRequest } from './generation-request.js';
import type { ScoredToken, TextOffsets } from './token-logprobs.js';

/** The data of one choice of a response, whole or in parts. */
export interface AnswerPart {
  /** prompt · n + sample */
  readonly index: number;
  readonly prompt: number;
  /** Whether this is the first part of the choice. */
  readonly first: boolean;
  /** Characters of the tokens of the choice, counted through all its parts. */
  readonly offsets: TextOffsets;
  readonly text: string;
  readonly tokens: readonly ScoredToken[];
  /** Log-probabilities of the whole prompt, if requested. */
  readonly promptLogprobs?: Float32Array | undefined;
  readonly promptTopLogprobs?: Sample['promptTopLogprobs'];
  readonly finishReason: FinishReason | null;
  readonly stopReason: number | string | null;
}

/** One of OpenAI's two response formats. */
export interface AnswerShape {
  /** Prefix of the response's id. */
  readonly prefix: string;
  /** The `object` of a response, whole and in parts. */
  readonly object: string;
  readonly chunkObject: string;
  /** Ids of the prompt, where the whole answer and the first part of each choice have them beside `choices`. */
  readonly promptIds?: readonly number[] | undefined;
  choice(part: AnswerPart): object;
  chunk(part: AnswerPart): object;
}

export interface Job {
  readonly request: GenerationRequest;
  readonly prompts: readonly (readonly number[])[];
  /** 0: only the results for the prompt. */
  readonly maxTokens: number | undefined;
  /** Default number of tokens for a request without one. Absent: as many as there is room for. */
  readonly usualTokens?: number;
  readonly topLogprobs: number;
  readonly promptLogprobs: boolean;
  /** Alternatives to each token of the prompt. */
  readonly promptTopLogprobs: number;
  readonly shape: AnswerShape;
  /** Makes the text of a reply. Default: the tokenizer of the model, without its special tokens. */
  readonly writer?: Pick<Tokenizer, 'tokenBytes' | 'isSpecial' | 'reversesDigits'>;
}
