/** /v1/chat/completions */
import { chatTokens } from '../generate/prompts.js';
import { StepTrainError } from '../native/errors.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { chatRequest } from './chat-request.js';
import type { Engine } from './engine.js';
import { fieldError, RequestError } from './errors.js';
import type { AnswerPart, AnswerShape, Job } from './job.js';
import type { RequestFields } from './request-fields.js';
import { messageLogprobs, tokenWriter } from './token-logprobs.js';

export function chatJob(engine: Engine, fields: RequestFields): Job {
  const request = chatRequest(fields, engine.limits);
  const ids = conversation(engine, request);
  return {
    request,
    prompts: [ids],
    maxTokens: request.maxTokens,
    topLogprobs: request.logprobs ?? 0,
    promptLogprobs: false,
    promptTopLogprobs: 0,
    shape: shapeOf(engine, request, ids),
  };
}

function conversation(engine: Engine, request: ReturnType<typeof chatRequest>): readonly number[] {
  const { tokenizer } = engine.served;
  const { messages, tools } = request;
  engine.checkLength(messages.map(({ content }) => content).join(''));
  if (!tokenizer.hasChatTemplate)
    throw new RequestError(
      400,
      'this model has no chat template; use /v1/completions, or serve a model that has one, such as word-problems',
    );
  checkRead(tokenizer, request);
  const options = {
    ...(tools ? { tools } : {}),
    addGenerationPrompt: request.addGenerationPrompt,
    continueFinalMessage: request.continueFinalMessage,
    variables: request.templateVariables,
  };
  try {
    return chatTokens(tokenizer, messages, options, (text) => engine.checkLength(text)).ids;
  } catch (error) {
    if (!(error instanceof StepTrainError)) throw error;
    throw fieldError('messages', error.message);
  }
}

/** A template that does not read them would leave them out in silence. */
function checkRead(
  tokenizer: Tokenizer,
  {
    tools,
    messages,
    templateVariables,
  }: Pick<ReturnType<typeof chatRequest>, 'tools' | 'messages' | 'templateVariables'>,
): void {
  const calling = messages.findIndex((message) => message.tool_calls !== undefined);
  const unread = (name: string) => tokenizer.templateReads?.(name) !== true;
  const param =
    tools && unread('tools')
      ? 'tools'
      : calling >= 0 && unread('tool_calls')
        ? `messages[${calling}].tool_calls`
        : undefined;
  if (param !== undefined)
    throw fieldError(
      param,
      'the chat template of this model knows no tools, and would leave them out; send none',
    );
  const other = Object.keys(templateVariables).find(
    (name) => tokenizer.templateReads?.(name, 'variable') !== true,
  );
  if (other !== undefined)
    throw fieldError(
      `chat_template_kwargs.${other.slice(0, 80)}`,
      'the chat template of this model does not read it; leave it out',
    );
}

function shapeOf(
  { served: { tokenizer } }: Engine,
  { logprobs, tokenIds, tokensAsIds }: ReturnType<typeof chatRequest>,
  prompt: readonly number[],
): AnswerShape {
  const write = tokenWriter(tokenizer, tokensAsIds);
  const rest = (part: AnswerPart) => ({
    logprobs: logprobs === undefined ? null : messageLogprobs(part.tokens, write, tokenizer),
    finish_reason: part.finishReason,
    stop_reason: part.stopReason,
    ...(tokenIds ? { token_ids: part.tokens.map(({ token }) => token) } : {}),
  });
  return {
    prefix: 'chatcmpl',
    object: 'chat.completion',
    chunkObject: 'chat.completion.chunk',
    promptIds: tokenIds ? prompt : undefined,
    choice: (part) => ({
      index: part.index,
      message: { role: 'assistant', content: part.text, refusal: null },
      ...rest(part),
    }),
    chunk: (part) => ({
      index: part.index,
      delta: { ...(part.first ? { role: 'assistant' } : {}), content: part.text },
      ...rest(part),
    }),
  };
}
