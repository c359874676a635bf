/** Calls of tools in what a model writes, in the forms of the chat templates that are about. */
import { parseExact } from '../files/exact-json.js';
import { attempt } from '../native/attempt.js';
import type { ToolCall } from '../records/turns.js';
import type { AgentTurn } from './environment.js';
import { parameterJson } from './parameters.js';

/** A turn with the calls that could not be read, each with the reason. */
export interface ReadTurn extends AgentTurn {
  readonly unread: readonly string[];
}

/** First JSON whose texts may hold the mark of the end, then anything up to that mark. */
const TAGGED =
  /<tool_call>(\s*\{(?:[^"<]|<(?!\/tool_call>)|"(?:[^"\\]|\\[\s\S])*")*?\}\s*(?=<\/tool_call>|$)|[\s\S]*?)(?:<\/tool_call>|$)/g;
const FUNCTION = /^\s*<function=([^>\s]+)>([\s\S]*?)(?:<\/function>\s*)?$/;
const PARAMETER = /<parameter=([^>\s]+)>\n?([\s\S]*?)\n?(?:<\/parameter>|(?=<parameter=))/g;

/**
 * Reads `<tool_call>` with JSON (Hermes, Qwen 2.5 and 3, SmolLM) or with `<function=…>` (Qwen 3.5), `[TOOL_CALLS]` (Mistral), and a text
 * that is one call in JSON (Llama 3). Everything else is what the turn says.
 *
 * @param tools whose schemas say of which type the parameters of a `<function=…>` are
 */
export function readTurn(text: string, tools: readonly unknown[] = []): ReadTurn {
  if (text.includes('<tool_call>')) {
    const found = [...text.matchAll(TAGGED)].map(([, inner = '']) => tagged(inner, tools));
    return joined(text.replaceAll(TAGGED, ''), found);
  }
  const mistral = text.indexOf(LIST);
  if (mistral >= 0) return joined(text.slice(0, mistral), listed(text.slice(mistral + LIST.length)));
  const own = text.trim().replace(/^<\|python_tag\|>/, '');
  const alone = own.startsWith('{') && own.endsWith('}') ? callOf(parsed(own)) : undefined;
  return alone ? { text: '', calls: [alone], unread: [] } : { text, calls: [], unread: [] };
}

const LIST = '[TOOL_CALLS]';

type Found = ToolCall | string;

function joined(text: string, found: readonly Found[]): ReadTurn {
  return {
    text: text.trim(),
    calls: found.filter((each) => typeof each !== 'string'),
    unread: found.filter((each) => typeof each === 'string'),
  };
}

function tagged(inner: string, tools: readonly unknown[]): Found {
  const [, name, body] = FUNCTION.exec(inner) ?? [];
  if (name !== undefined && body !== undefined) {
    const rest = body.replaceAll(PARAMETER, '').trim();
    if (rest !== '')
      return `the call of ${name} has ${JSON.stringify(rest.slice(0, 120))} beside <parameter=NAME> … </parameter>`;
    const given = [...body.matchAll(PARAMETER)].map(
      ([, key = '', value = '']) => `${JSON.stringify(key)}:${parameterJson(value, tools, name, key)}`,
    );
    return { name, arguments: parseExact(`{${given.join()}}`) };
  }
  return (
    callOf(parsed(inner)) ??
    `the call ${JSON.stringify(inner.trim().slice(0, 120))} is no {"name": …, "arguments": {…}} in JSON`
  );
}

function listed(text: string): Found[] {
  const given = parsed(text);
  const list = Array.isArray(given) ? given : [given];
  return list.map(
    (one: unknown) =>
      callOf(one) ??
      `the call ${JSON.stringify(text.trim().slice(0, 120))} is no {"name": …, "arguments": {…}} in JSON`,
  );
}

function callOf(value: unknown): ToolCall | undefined {
  const { name, arguments: given, parameters = given } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const isCall =
    typeof name === 'string' &&
    typeof parameters === 'object' &&
    parameters !== null &&
    !Array.isArray(parameters);
  return isCall ? { name, arguments: parameters } : undefined;
}

function parsed(text: string): unknown {
  return attempt(() => parseExact(text));
}
