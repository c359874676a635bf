/** A request to /v1/chat/completions: messages, which the model's chat template turns into a prompt. */
import type { ChatMessage } from '../tokenizer/tokenizer.js';
import { chatMessage } from './chat-message.js';
import { type GenerationRequest, generationRequest, MAX_ALTERNATIVES } from './generation-request.js';
import type { ServeLimits } from './limits.js';
import { RequestFields } from './request-fields.js';

export interface ChatRequest extends GenerationRequest {
  readonly messages: readonly ChatMessage[];
  /** Functions that the reply may call, if there are any. */
  readonly tools: readonly object[] | undefined;
  /** Whether calls in the reply are read; false: they are text. */
  readonly readsCalls: boolean;
  /** The reply begins anew, after what opens it; false: the prompt ends with the messages. */
  readonly addGenerationPrompt: boolean;
  /** The reply continues the last message. */
  readonly continueFinalMessage: boolean;
  /** Further variables of the template. */
  readonly templateVariables: Readonly<Record<string, unknown>>;
  /** Undefined: the rest of the context. */
  readonly maxTokens: number | undefined;
  /** Log-probabilities of each token with this many alternatives; undefined: none. */
  readonly logprobs: number | undefined;
}

const MAX_MESSAGES = 4096;

/** OpenAI's limit. */
const MAX_TOOLS = 128;

export function chatRequest(fields: RequestFields, { samples }: Pick<ServeLimits, 'samples'>): ChatRequest {
  const common = generationRequest(fields, samples);
  const given = fields.list('messages', (item): item is unknown => true, 'messages', MAX_MESSAGES);
  if (given === undefined || given.length === 0) fields.fail('messages', 'a list of at least one message');
  const messages = (given as readonly unknown[]).map((message, i) =>
    chatMessage(new RequestFields(message, `messages[${i}].`)),
  );
  const variables = fields.value('chat_template_kwargs') ?? {};
  if (typeof variables !== 'object' || Array.isArray(variables))
    fields.fail('chat_template_kwargs', 'an object');
  const maxTokens = fields.integer('max_completion_tokens', 1) ?? fields.integer('max_tokens', 1);
  fields.ignore('max_tokens');
  const alternatives = fields.integer('top_logprobs', 0, MAX_ALTERNATIVES);
  const logprobs = fields.flag('logprobs') ?? false;
  if (alternatives !== undefined && !logprobs) fields.fail('top_logprobs', 'it only beside logprobs: true');
  const { tools, choice } = givenTools(fields);
  fields.neutral('functions');
  fields.neutral('function_call', 'none', 'auto');
  fields.neutral('prediction');
  fields.neutral('audio');
  fields.neutral('documents');
  if (String(fields.value('modalities')) !== 'text') fields.neutral('modalities');
  const addGenerationPrompt = fields.flag('add_generation_prompt') ?? true;
  const continueFinalMessage = fields.flag('continue_final_message') ?? false;
  if (addGenerationPrompt && continueFinalMessage)
    fields.fail('continue_final_message', 'it only beside add_generation_prompt: false');
  fields.neutral('echo', false);
  fields.neutral('add_special_tokens', false);
  fields.neutral('reasoning_effort');
  fields.neutral('verbosity');
  fields.ignore('parallel_tool_calls');
  fields.end();
  return {
    ...common,
    messages,
    tools,
    readsCalls: tools !== undefined && choice !== 'none',
    addGenerationPrompt,
    continueFinalMessage,
    templateVariables: variables as Readonly<Record<string, unknown>>,
    maxTokens,
    logprobs: logprobs ? (alternatives ?? 0) : undefined,
  };
}

/** Function descriptions for the template, which shows them with `tool_choice: "none"` too, as in vLLM; undefined where there are none. */
function givenTools(fields: RequestFields): {
  readonly tools: readonly object[] | undefined;
  readonly choice: 'auto' | 'none';
} {
  const tools = fields.list('tools', (item): item is object => isFunction(item), 'functions', MAX_TOOLS);
  const choice = fields.value('tool_choice') ?? 'auto';
  if (choice !== 'auto' && choice !== 'none')
    fields.refuse(
      'tool_choice',
      'this server reads the calls that the model writes and forces none; expected "auto" or "none"',
    );
  return { tools: tools?.length === 0 ? undefined : tools, choice };
}

function isFunction(item: unknown): boolean {
  const { type, function: described } = (item ?? {}) as { type?: unknown; function?: unknown };
  return type === 'function' && typeof (described as { name?: unknown } | undefined)?.name === 'string';
}
