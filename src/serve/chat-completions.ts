/** /v1/chat/completions */
import { unreadCallsSentence } from '../environments/unread-calls.js';
import { chatTokens } from '../generate/prompts.js';
import { StepTrainError } from '../native/errors.js';
import { warnOnce } from '../terminal/log.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { chatRequest } from './chat-request.js';
import type { Engine } from './engine.js';
import { fieldError, RequestError } from './errors.js';
import type { AnswerPart, AnswerShape, Job } from './job.js';
import { type CallingReply, ReplyReader, withMarks } from './reply-calls.js';
import type { RequestFields } from './request-fields.js';
import { messageLogprobs, tokenWriter } from './token-logprobs.js';

export function chatJob(engine: Engine, fields: RequestFields): Job {
  const request = chatRequest(fields, engine.limits);
  const ids = conversation(engine, request);
  const { tokenizer } = engine.served;
  if (request.readsCalls) warnOfCalls(engine, request.tools ?? []);
  return {
    request,
    ...(request.readsCalls ? { writer: withMarks(tokenizer) } : {}),
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
  { logprobs, tokenIds, tokensAsIds, readsCalls, tools = [] }: ReturnType<typeof chatRequest>,
  prompt: readonly number[],
): AnswerShape {
  const readers = new Map<number, ReplyReader>();
  const readerOf = (index: number): ReplyReader => {
    const reader = readers.get(index) ?? new ReplyReader(tools);
    readers.set(index, reader);
    return reader;
  };
  const read = ({ index, text, finishReason }: AnswerPart): CallingReply =>
    readsCalls ? readerOf(index).push(text, finishReason) : { content: text, calls: [] };
  const write = tokenWriter(tokenizer, tokensAsIds);
  const rest = (part: AnswerPart, { calls }: CallingReply) => ({
    logprobs: logprobs === undefined ? null : messageLogprobs(part.tokens, write, tokenizer),
    finish_reason: calls.length > 0 ? 'tool_calls' : part.finishReason,
    stop_reason: part.stopReason,
    ...(tokenIds ? { token_ids: part.tokens.map(({ token }) => token) } : {}),
  });
  return {
    prefix: 'chatcmpl',
    object: 'chat.completion',
    chunkObject: 'chat.completion.chunk',
    promptIds: tokenIds ? prompt : undefined,
    choice: (part) => {
      const said = read(part);
      const message = { role: 'assistant', content: said.content, refusal: null };
      return {
        index: part.index,
        message:
          said.calls.length === 0
            ? message
            : { ...message, content: said.content === '' ? null : said.content, tool_calls: said.calls },
        ...rest(part, said),
      };
    },
    chunk: (part) => {
      const said = read(part);
      return {
        index: part.index,
        delta: {
          ...(part.first ? { role: 'assistant' } : {}),
          content: said.content,
          ...(said.calls.length === 0
            ? {}
            : { tool_calls: said.calls.map((call, index) => ({ index, ...call })) }),
        },
        ...rest(part, said),
      };
    },
  };
}

const TOLD = new WeakSet<Tokenizer>();

/** Says it once for each model. */
function warnOfCalls({ served: { tokenizer }, eosTokenIds }: Engine, tools: readonly object[]): void {
  if (TOLD.has(tokenizer)) return;
  TOLD.add(tokenizer);
  const sentence = unreadCallsSentence(tokenizer, tools, eosTokenIds, 'replies have such calls as text');
  if (sentence !== undefined) warnOnce(sentence);
}
