/** Conversations as programs export them: spans of OpenTelemetry, traces of verifiers and prime-rl, dumps of SkyRL and verl. */
import { exactText, numberText, parseExact } from '../../files/exact-json.js';
import { attempt } from '../../native/attempt.js';
import { BadRow } from '../bad-row.js';
import { isRow, misfit, type Row } from '../columns.js';
import { asFunction } from './chat.js';

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
    const texts = found.map(({ messages }) => exactText(messages).slice(0, -1));
    return found.filter((_, i) => !texts.some((other, k) => k !== i && other.startsWith(`${texts[i]},`)));
  }
  const traces = tracesOf(row);
  if (traces?.length === 0)
    throw new BadRow(
      'no_turns',
      'the episode has no traces; expected at least one, as of episodes that did not fail',
    );
  if (traces) return traces.flatMap(conversationsOfTrace);
  return isDump(row) ? [conversationOfDump(row)] : undefined;
}

/** Whether a row is an export that {@link exportedConversations} reads. */
export const isExported = (row: Row): boolean =>
  isDump(row) || tracesOf(row) !== undefined || (spansOf(row)?.length ?? 0) > 0;

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
      return [[one.key, anyValue(one.value)] as const];
    }),
  );
}

/** A value as OTLP's JSON writes it: a text, or a list or an object of such values. */
function anyValue({ stringValue, arrayValue, kvlistValue, ...number }: Row): unknown {
  const listed = (list: unknown): readonly Row[] =>
    isRow(list) && Array.isArray(list.values) ? list.values.filter(isRow) : [];
  if (arrayValue !== undefined) return listed(arrayValue).map(anyValue);
  if (kvlistValue !== undefined)
    return Object.fromEntries(
      listed(kvlistValue).map(({ key, value }) => [String(key), isRow(value) ? anyValue(value) : undefined]),
    );
  // JSON of protocol buffers writes 64-bit integers as texts.
  const whole =
    typeof number.intValue === 'string'
      ? attempt(() => parseExact(number.intValue as string))
      : number.intValue;
  return stringValue ?? whole ?? number.doubleValue ?? number.boolValue;
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
  const tools = list('gen_ai.tool.definitions').map(asFunction);
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
      const said = typeof result === 'string' ? result : exactText(result ?? '');
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

/** The traces of an episode of verifiers, which prime-rl keeps too (a line of `traces.jsonl`), or one that stands alone. */
function tracesOf(row: Row): readonly Row[] | undefined {
  if (isTrace(row)) return [row];
  const { traces, task } = row;
  return Array.isArray(traces) && isRow(task) && traces.every(isTrace) ? (traces as Row[]) : undefined;
}

const isTrace = (one: unknown): boolean => isRow(one) && isRow(one.task) && Array.isArray(one.nodes);

/**
 * The conversations of a trace: its messages are a graph, and each path from a root to a leaf is one. They share its weighted rewards, and
 * `info.turn_rewards`, a number or null for each message that the model wrote. Traces of agents that are not trained, such as judges and
 * simulated users, have none.
 *
 * @throws BadRow for nodes of another form, and for another number of rewards than turns
 */
function conversationsOfTrace({ nodes: listed, agent, tools, rewards, info, task }: Row): Row[] {
  if (isRow(agent) && agent.trainable === false) return [];
  const nodes = (listed as readonly unknown[]).map((node, i) => {
    const { parent, message, sampled, tools: own } = isRow(node) ? node : {};
    const isRoot = parent === undefined || parent === null;
    // Every node comes after the one that it goes on from, so that a path ends.
    if (!isRow(message) || !(isRoot || (typeof parent === 'number' && parent >= 0 && parent < i)))
      throw misfit(`node ${i} of the trace is`, node, 'a message, and a parent among the nodes before it');
    return { parent: isRoot ? undefined : (parent as number), message, sampled: sampled === true, own };
  });
  const turns = nodes.flatMap(({ sampled }, i) => (sampled ? [i] : []));
  const given = isRow(info) ? info.turn_rewards : undefined;
  if (Array.isArray(given) && given.length !== turns.length)
    throw new BadRow(
      'label_count',
      `info.turn_rewards has ${given.length} entries, and the model wrote ${turns.length} messages of the trace; expected one for each`,
    );
  const paid = Object.values(isRow(rewards) ? rewards : {}).filter(isRow);
  const reward = paid.reduce(
    (sum, { score, weight }, i) =>
      sum +
      numberIn(score, `the score of reward ${i + 1}`) *
        numberIn(weight ?? 1, `the weight of reward ${i + 1}`),
    0,
  );
  const parents = new Set(nodes.map(({ parent }) => parent));
  return nodes.flatMap((_, leaf) => {
    if (parents.has(leaf)) return [];
    const path: number[] = [];
    for (let at: number | undefined = leaf; at !== undefined; at = nodes[at]?.parent) path.unshift(at);
    if (!path.some((i) => nodes[i]?.sampled)) return [];
    const replies = path.filter((i) => nodes[i]?.message.role === 'assistant');
    const answer = isRow(task) && isRow(task.data) ? answerIn(task.data, 'answer') : undefined;
    // The root has the tools of its branch; older files have those of the trace alone.
    const described = nodes[path[0] ?? 0]?.own ?? tools;
    return [
      {
        messages: path.map((i) => nodes[i]?.message),
        ...(Array.isArray(described) && described.length > 0 ? { tools: described.map(asFunction) } : {}),
        ...(Array.isArray(given)
          ? { turn_rewards: replies.map((i) => given[turns.indexOf(i)] ?? null) }
          : {}),
        ...(paid.length > 0 ? { reward } : {}),
        ...(answer === undefined ? {} : { answer }),
      },
    ];
  });
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

/** Marks of chat templates: what opens a message, with its role, what ends it, and whether a line break follows the end. */
const MARKS: readonly {
  readonly opens: RegExp;
  readonly ends: RegExp;
  readonly breaks: (text: string) => boolean;
}[] = [
  // ChatML: Qwen, SmolLM, Hermes, LFM2, Nemotron 3.
  { opens: /<\|im_start\|>(\w+)\n/g, ends: /<\|im_end\|>/, breaks: () => true },
  // Llama 3.
  {
    opens: /<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n/g,
    ends: /<\|eo[tm]_id\|>/,
    breaks: () => false,
  },
  // Gemma.
  { opens: /<start_of_turn>(\w+)\n/g, ends: /<end_of_turn>/, breaks: () => true },
  // Phi 3, and GLM, which ends no message.
  {
    opens: /<\|(system|user|assistant|observation)\|>\n?/g,
    ends: /<\|end\|>|<\|endoftext\|>/,
    breaks: (text) => text.includes('<|end|>'),
  },
];

/**
 * Beginnings of messages whose special tokens were not decoded: in ChatML and Gemma a role alone on a line, in Llama 3 a role at the end
 * of the message before, and an empty line.
 */
const UNMARKED: readonly RegExp[] = [
  /(?<=^|\n)(system|user|assistant|model|tool)\n/g,
  /(?<!\s)(system|user|assistant|ipython|tool)\n\n/g,
];

/** Roles as templates write them, where they differ from OpenAI's. */
const ROLES: Readonly<Record<string, string>> = { model: 'assistant', ipython: 'tool', observation: 'tool' };

function conversationOfDump(row: Row): Row {
  const [prompt, output] = dumpedTexts(row) as readonly [string, string];
  const text = prompt + output;
  const messages = markedMessages(text) ?? unmarkedMessages(text, prompt.length);
  if (messages === undefined)
    throw new BadRow(
      'no_marks',
      'the turns of the rollout cannot be told: its text has no marks of messages (such as <|im_start|>), nor lines that are a role ' +
        'alone, with those of the user and the assistant in turn and a turn at the end; expected a dump of a model with the template of ChatML, Llama 3, ' +
        'Gemma, Phi 3 or GLM, or messages',
    );
  const { score } = row;
  const reward = Array.isArray(score)
    ? score.reduce((sum: number, one: unknown, i) => sum + numberIn(one, `score ${i + 1}`), 0)
    : score;
  const answer = answerIn(row, 'gts');
  return { messages, reward, ...(answer === undefined ? {} : { answer }) };
}

/** An answer that is a text or a number; others are for graders of their own. */
const answerIn = (row: Row, key: string): string | undefined =>
  typeof row[key] === 'string' ? (row[key] as string) : numberText(row, key);

/** A finite number. @throws BadRow for anything else, which would count as 0 or as none */
function numberIn(value: unknown, where: string): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw misfit(`${where} is`, value, 'a number', 'bad_score');
}

interface Opening {
  readonly role: string;
  readonly begin: number;
  /** Start of the content. */
  readonly end: number;
}

const openings = (text: string, opens: RegExp): Opening[] =>
  [...text.matchAll(opens)].map(({ 0: mark, 1: role = '', index }) => ({
    role: ROLES[role] ?? role,
    begin: index,
    end: index + mark.length,
  }));

/**
 * The messages of a text whose marks are those of one template; undefined where there are none.
 *
 * @throws BadRow for a text between messages
 */
function markedMessages(text: string): Row[] | undefined {
  for (const { opens, ends, breaks } of MARKS) {
    const found = openings(text, opens);
    if (found.length === 0) continue;
    checkNoText(text.slice(0, found[0]?.begin), 'begins with');
    return found.map(({ role, end }, i) => {
      const next = found[i + 1];
      const said = text.slice(end, next?.begin);
      const at = said.search(ends);
      // A turn that was cut has no mark of its end; the line break before the next message is the template's.
      if (at < 0) return { role, content: next && breaks(text) ? said.replace(/\n$/, '') : said };
      checkNoText(said.slice(at), `has after the end of message ${i + 1}`);
      return { role, content: said.slice(0, at) };
    });
  }
  return undefined;
}

/** @throws BadRow for anything between messages but white space, padding and other special tokens, which would be lost */
function checkNoText(between: string, where: string): void {
  const text = between.replace(/\s|\[gMASK\]|<\|[^<>|]*\|>|<\/?[a-z_]+>/g, '');
  if (text !== '')
    throw new BadRow(
      'text_between',
      `the rollout ${where} ${JSON.stringify(between.trim().slice(0, 60))}; expected every text inside the marks of a message`,
    );
}

/**
 * Messages at their roles; undefined where the prompt, of `asking` characters, does not ask for a turn, or roles do not alternate up to a
 * turn at the end. So such a word in what somebody writes is found out, unless that has the word for a turn after it too.
 */
function unmarkedMessages(text: string, asking: number): Row[] | undefined {
  for (const opens of UNMARKED) {
    const found = openings(text, opens);
    const first = found[0]?.role === 'system' ? 1 : 0;
    const asked = found.findLast(({ begin }) => begin < asking);
    const alternate = found
      .slice(first)
      .every(({ role }, i) => (i % 2 === 0 ? ['user', 'tool'].includes(role) : role === 'assistant'));
    const isEnded = found.at(-1)?.role === 'assistant';
    if (found[0]?.begin !== 0 || asked?.role !== 'assistant' || !alternate || !isEnded) continue;
    return found.map(({ role, end }, i) => ({
      role,
      // The line break is the template's, after the mark that ends a message.
      content: text.slice(end, found[i + 1]?.begin).replace(/\n$/, ''),
    }));
  }
  return undefined;
}

function readJson(value: unknown, where: string): unknown {
  if (typeof value !== 'string') return value;
  try {
    return parseExact(value);
  } catch {
    throw misfit(`${where} holds`, value, 'JSON');
  }
}
