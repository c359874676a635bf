/** /v1/completions */

import { promptTokens } from '../generate/prompts.js';
import { detokenize } from '../generate/rows/detokenize.js';
import { StepTrainError } from '../native/errors.js';
import { completionRequest, DEFAULT_TOKENS } from './completion-request.js';
import type { Engine } from './engine.js';
import { fieldError } from './errors.js';
import type { AnswerPart, AnswerShape, Job } from './job.js';
import type { RequestFields } from './request-fields.js';
import { type ScoredToken, textLogprobs, tokenWriter, writtenPromptLogprobs } from './token-logprobs.js';

export function completionJob(engine: Engine, fields: RequestFields): Job {
  const request = completionRequest(fields, engine.limits);
  const { tokenizer } = engine.served;
  const prompts = request.prompts.map((prompt) => {
    if (typeof prompt !== 'string') return prompt;
    engine.checkLength(prompt);
    try {
      return promptTokens(tokenizer, prompt);
    } catch (error) {
      if (!(error instanceof StepTrainError)) throw error;
      throw fieldError('prompt', error.message);
    }
  });
  const { vocabSize } = engine.served.model.decoder.config;
  const unknown = prompts.flat().find((id) => id >= vocabSize);
  if (unknown !== undefined)
    throw fieldError('prompt', `expected token ids from 0 to ${vocabSize - 1}, found ${unknown}`);
  const { echo, logprobs, promptLogprobs } = request;
  const ofPrompt = [promptLogprobs, echo ? logprobs : undefined].filter((count) => count !== undefined);
  return {
    request,
    prompts,
    maxTokens: request.maxTokens,
    usualTokens: DEFAULT_TOKENS,
    topLogprobs: request.logprobs ?? 0,
    promptLogprobs: ofPrompt.length > 0,
    promptTopLogprobs: Math.max(0, ...ofPrompt),
    shape: shapeOf(engine, request, prompts),
  };
}

function shapeOf(
  { served: { tokenizer } }: Engine,
  request: ReturnType<typeof completionRequest>,
  prompts: readonly (readonly number[])[],
): AnswerShape {
  const { echo, logprobs, tokenIds } = request;
  const write = tokenWriter(tokenizer, request.tokensAsIds);
  const echoed = (prompt: number) => {
    const given = request.prompts[prompt];
    return typeof given === 'string'
      ? given
      : detokenize(tokenizer, prompts[prompt] ?? [], { skipSpecialTokens: false });
  };
  const choice = (part: AnswerPart) => {
    const ids = prompts[part.prompt] as readonly number[];
    const ofPrompt = (): ScoredToken[] =>
      ids.map((token, i) => ({
        token,
        logprob: i === 0 ? undefined : part.promptLogprobs?.[i - 1],
        alternatives: i === 0 ? undefined : part.promptTopLogprobs?.[i - 1],
      }));
    const opens = echo && part.first;
    const scored = opens && logprobs !== undefined ? [...ofPrompt(), ...part.tokens] : part.tokens;
    return {
      index: part.index,
      text: opens ? echoed(part.prompt) + part.text : part.text,
      logprobs:
        logprobs === undefined
          ? null
          : textLogprobs(scored, write, {
              ...{ offsets: part.offsets, count: logprobs, prompt: opens ? ids.length : 0 },
            }),
      finish_reason: part.finishReason,
      stop_reason: part.stopReason,
      ...(tokenIds ? { token_ids: part.tokens.map(({ token }) => token) } : {}),
      ...(tokenIds && part.first ? { prompt_token_ids: ids } : {}),
      ...(request.promptLogprobs === undefined
        ? {}
        : { prompt_logprobs: writtenPromptLogprobs(ofPrompt(), tokenizer, request.promptLogprobs) }),
    };
  };
  return { prefix: 'cmpl', object: 'text_completion', chunkObject: 'text_completion', choice, chunk: choice };
}
