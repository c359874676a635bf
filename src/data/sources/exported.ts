/** Conversations as programs export them: spans of OpenTelemetry's GenAI conventions, and dumps of rollouts of SkyRL and verl. */
import { parseExact } from '../../files/exact-json.js';
import { BadRow } from '../bad-row.js';
import { isRow, misfit, type Row } from '../columns.js';

/** Attributes of a span that hold messages, as JSON texts or as lists. */
const INPUT = 'gen_ai.input.messages';
const OUTPUT = 'gen_ai.output.messages';

/**
 * The conversations of an exported row as rows of `messages`, with `tools` and a `reward` where it has them; undefined for a row that is
 * no such export. A span of a model has all that came before it: of the spans of a batch (`resourceSpans`) those are left out that
 * another one goes on from.
 *
 * @throws BadRow for messages of another form
 */
export function exportedConversations(row: Row): readonly Row[] | undefined {
  const spans = spansOf(row);
  if (spans) {
    const found = spans.map(conversationOfSpan);
    const texts = found.map(({ messages }) => JSON.stringify(messages).slice(0, -1));
    return found.filter((_, i) => !texts.some((other, k) => k !== i && other.startsWith(`${texts[i]},`)));
  }
  return isDump(row) ? [conversationOfDump(row)] : undefined;
}

/** Whether a row is an export that {@link exportedConversations} reads. */
export const isExported = (row: Row): boolean => isDump(row) || (spansOf(row)?.length ?? 0) > 0;

/** The spans of a row that have messages: itself, or those of a batch in OTLP's JSON. */
function spansOf(row: Row): readonly Row[] | undefined {
  if (hasMessages(row)) return [row];
  if (!Array.isArray(row.resourceSpans)) return undefined;
  const inner = (list: unknown, key: string): Row[] =>
    (Array.isArray(list) ? list : []).flatMap((one: unknown) =>
      isRow(one) && Array.isArray(one[key]) ? (one[key] as Row[]) : [],
    );
  return inner(inner(row.resourceSpans, 'scopeSpans'), 'spans').filter(
    (span) => isRow(span) && hasMessages(span),
  );
}

const hasMessages = (span: Row) => {
  const { [INPUT]: input, [OUTPUT]: output } = attributesOf(span);
  return input !== undefined && output !== undefined;
};

/** Attributes by name, as an object or as OTLP lists them. */
function attributesOf({ attributes }: Row): Row {
  if (isRow(attributes)) return attributes;
  if (!Array.isArray(attributes)) return {};
  return Object.fromEntries(
    attributes.flatMap((one: unknown) => {
      if (!isRow(one) || typeof one.key !== 'string' || !isRow(one.value)) return [];
      return [[one.key, one.value.stringValue] as const];
    }),
  );
}

function conversationOfSpan(span: Row): Row {
  const attributes = attributesOf(span);
  const list = (key: string): readonly unknown[] => {
    const found = readJson(attributes[key] ?? [], `attribute '${key}'`);
    if (!Array.isArray(found)) throw misfit(`attribute '${key}' holds`, found, 'a list');
    return found;
  };
  const instructions = list('gen_ai.system_instructions');
  const system = instructions.length === 0 ? [] : [{ role: 'system', parts: instructions }];
  const messages = [...system, ...list(INPUT), ...list(OUTPUT)].flatMap((message, i) =>
    messagesOfParts(message, `message ${i + 1}`),
  );
  const tools = list('gen_ai.tool.definitions').map((tool) => {
    if (!isRow(tool) || isRow(tool.function)) return tool;
    const { type = 'function', ...described } = tool;
    return { type, function: described };
  });
  return { messages, ...(tools.length === 0 ? {} : { tools }) };
}

/** A message of parts as OpenAI's; one with several results of tools is a message for each. */
function messagesOfParts(message: unknown, where: string): Row[] {
  if (!isRow(message) || typeof message.role !== 'string' || !Array.isArray(message.parts))
    throw misfit(`${where} is`, message, '{"role": …, "parts": [{"type": "text", "content": …}, …]}');
  const texts: string[] = [];
  const reasoning: string[] = [];
  const calls: Row[] = [];
  const results: Row[] = [];
  for (const part of message.parts as readonly unknown[]) {
    const { type, content, id, name, arguments: given } = isRow(part) ? part : {};
    if (type === 'text' && typeof content === 'string') texts.push(content);
    else if (type === 'reasoning' && typeof content === 'string') reasoning.push(content);
    else if (type === 'tool_call')
      calls.push({
        ...(typeof id === 'string' ? { id } : {}),
        type: 'function',
        function: { name, arguments: given ?? {} },
      });
    else if (type === 'tool_call_response') {
      const { response, result = response } = part as Row;
      const said = typeof result === 'string' ? result : JSON.stringify(result ?? '');
      results.push({ role: 'tool', content: said, ...(typeof id === 'string' ? { tool_call_id: id } : {}) });
    } else
      throw new BadRow(
        'wrong_type',
        `${where} has a part of type ${JSON.stringify(type)}; expected text, reasoning, tool_call or tool_call_response, as models read text alone`,
      );
  }
  const own = {
    role: message.role,
    content: texts.join('\n'),
    ...(reasoning.length === 0 ? {} : { reasoning_content: reasoning.join('\n') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
  const isSilent = texts.length === 0 && calls.length === 0;
  return [...(isSilent && results.length > 0 ? [] : [own]), ...results];
}

/** The texts of a prompt and of all that followed it, as the chat template wrote them, with a score. */
const isDump = (row: Row): boolean => {
  const [prompt, output] = dumpedTexts(row);
  return (
    typeof prompt === 'string' && typeof output === 'string' && 'score' in row && !('instruction' in row)
  );
};

function dumpedTexts({
  input_prompt: prompt,
  output_response: output,
  input,
  output: response,
  step,
}: Row): readonly [unknown, unknown] {
  return prompt !== undefined || step === undefined ? [prompt, output] : [input, response];
}

const CHATML = /<\|im_start\|>(\w+)\n([\s\S]*?)(?:<\|im_end\|>|$)/g;

function conversationOfDump(row: Row): Row {
  const text = dumpedTexts(row).join('');
  const messages = [...text.matchAll(CHATML)].map(([, role, content = '']) => ({ role, content }));
  if (messages.length === 0)
    throw new BadRow(
      'no_marks',
      'the text of the rollout has no marks of messages (<|im_start|>), so that its turns cannot be told; expected a dump with special ' +
        'tokens of a template in ChatML (the trainer of verl leaves them out: skip_special_tokens), or messages',
    );
  const { score, gts } = row;
  const reward = Array.isArray(score)
    ? score.reduce((sum: number, one: unknown) => sum + Number(one), 0)
    : score;
  return { messages, reward, ...(typeof gts === 'string' ? { answer: gts } : {}) };
}

function readJson(value: unknown, where: string): unknown {
  if (typeof value !== 'string') return value;
  try {
    return parseExact(value);
  } catch {
    throw misfit(`${where} holds`, value, 'JSON');
  }
}
