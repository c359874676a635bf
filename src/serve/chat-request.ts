/** A request to /v1/chat/completions: messages, which the model's chat template turns into a prompt. */
import { nearestName } from '../config/nearest.js';
import type { ChatMessage } from '../tokenizer/tokenizer.js';
import { type GenerationRequest, generationRequest, MAX_ALTERNATIVES } from './generation-request.js';
import type { ServeLimits } from './limits.js';
import { RequestFields } from './request-fields.js';

export interface ChatRequest extends GenerationRequest {
  readonly messages: readonly ChatMessage[];
  /** Further variables of the template. */
  readonly templateVariables: Readonly<Record<string, unknown>>;
  /** Undefined: the rest of the context. */
  readonly maxTokens: number | undefined;
  /** Log-probabilities of each token with this many alternatives; undefined: none. */
  readonly logprobs: number | undefined;
}

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'];

const MAX_MESSAGES = 4096;

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
  fields.neutral('tools');
  fields.neutral('tool_choice', 'none');
  fields.neutral('functions');
  fields.neutral('modalities');
  fields.neutral('prediction');
  fields.neutral('add_generation_prompt', true);
  fields.neutral('continue_final_message', false);
  fields.neutral('reasoning_effort');
  fields.neutral('verbosity');
  fields.ignore('parallel_tool_calls');
  fields.end();
  return {
    ...common,
    messages,
    templateVariables: variables as Readonly<Record<string, unknown>>,
    maxTokens,
    logprobs: logprobs ? (alternatives ?? 0) : undefined,
  };
}

function chatMessage(fields: RequestFields): ChatMessage {
  const role = roleOf(fields);
  const name = fields.text('name');
  const content = messageText(fields);
  fields.neutral('refusal');
  fields.neutral('audio');
  fields.neutral('tool_calls');
  fields.end();
  return { role, content, ...(name === undefined ? {} : { name }) };
}

/** Templates may know further roles; one that is nearly a usual one is misspelt. */
function roleOf(fields: RequestFields): string {
  const role = fields.requiredText('role');
  // The longest misspelling of a role is short; comparing takes time in proportion.
  const isKnown = ROLES.includes(role) || role.length > 20;
  const nearest = isKnown ? undefined : nearestName(role, ROLES);
  if (nearest === undefined) return role;
  return fields.fail(
    'role',
    `${ROLES.join(', ')} or another role of the template`,
    `${JSON.stringify(role)}; did you mean ${nearest}?`,
  );
}

/** Texts, whole or in parts. */
function messageText(fields: RequestFields): string {
  const value = fields.value('content');
  if (typeof value === 'string') return value;
  const parts = Array.isArray(value)
    ? value
    : fields.fail('content', 'a text, or a list of parts of type text');
  return parts
    .map((part, i) => {
      const inner = new RequestFields(part, `content[${i}].`);
      if (inner.requiredText('type') !== 'text') inner.fail('type', '"text", as the model reads text alone');
      const text = inner.requiredText('text');
      inner.end();
      return text;
    })
    .join('');
}
