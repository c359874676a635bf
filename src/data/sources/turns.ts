import { parseExact } from '../../files/exact-json.js';
import { attempt } from '../../native/attempt.js';
import { defined } from '../../native/defined.js';
import type { Message, Step, StepLabel, StepRecord } from '../../records/record.js';
import { callsOf, dividedTurns, stepOfTurn } from '../../records/turns.js';
import { BadRow } from '../bad-row.js';
import { describeValue, has, isRow, labelValue, optionalText, type Row } from '../columns.js';
import { extrasOf, messagesOf, questionOf, templateInputs } from './chat.js';
import { exportedConversations, isExported } from './exported.js';
import type { ConversionLog, ReadingOptions, Source } from './source.js';

/** Columns with a label or a reward of each turn of the assistant. */
const BY_TURN = ['turn_labels', 'turn_rewards'] as const;

/** Columns with the outcome of a conversation. */
const OUTCOMES = ['outcome', 'label', 'reward'] as const;

/**
 * Conversations whose turns of the assistant are steps: `messages` or `conversations`, or the lists `prompt` and `completion` of rollouts.
 * A turn has its label from its message (`label` or `reward`), from a column of {@link BY_TURN}, or from `trajectory`, as verifiers saves
 * it; the whole has one from a column of {@link OUTCOMES}. Exports of other programs become such rows first.
 */
export const turns: Source<ReadingOptions> = {
  name: 'turns',
  columns:
    'messages, conversations or prompt and completion (lists of messages)[, turn_rewards, reward, tools]; traces of verifiers; spans of OpenTelemetry; dumps of SkyRL, verl',
  matches: (row) => isExported(row) || (isConversation(row) && (labelsTurns(row) || isRewarded(row))),
  convert: (row, options, log) =>
    (exportedConversations(row) ?? [row]).flatMap((one) => recordsOf(one, options, log)),
};

function recordsOf(row: Row, { label_threshold }: ReadingOptions, log: ConversionLog): readonly StepRecord[] {
  const { given, messages } = conversationOf(row);
  const { prompt, turns: divided } = dividedTurns(messages);
  if (divided.length === 0)
    throw new BadRow(
      'no_turns',
      'the conversation has no message of "assistant"; expected at least one turn',
    );
  if (prompt.length === 0)
    throw new BadRow(
      'no_prompt',
      'the conversation begins with a turn of the assistant; expected a message before it',
    );
  const tools = toolsOf(row);
  const scores = scoresOf(row, given, divided.length);
  checkCalls(messages, tools);
  const steps = divided.map((turn, i): Step => {
    const score = scores[i];
    const isNumber = typeof score === 'number';
    const label: StepLabel = isNumber ? (score >= label_threshold ? 1 : 0) : (score?.label ?? null);
    if (label === null) log.unlabelled('no_label');
    return { ...stepOfTurn(turn), label, ...(isNumber ? { score } : {}) };
  });
  const asked = { ...row, tools, prompt };
  return [
    defined<StepRecord>({
      problem: questionOf(prompt),
      prompt,
      ...templateInputs(asked, { prompt }),
      gold_answer: optionalText(row, 'answer'),
      steps,
      turns: true,
      outcome: outcomeOf(row, label_threshold),
    }),
  ];
}

/** Whether a row is a conversation with tools, used or not, so that its turns are steps to whoever scores it. */
export function hasTools(row: Row): boolean {
  if (!isConversation(row)) return false;
  const tools = toolsOf(row);
  const described = typeof tools === 'string' ? json(tools) : tools;
  if (Array.isArray(described) && described.length > 0) return true;
  return givenMessages(row).some(
    (turn) =>
      isRow(turn) &&
      (['tool', 'observation', 'function_call'].includes(String(turn.role ?? turn.from)) ||
        (Array.isArray(turn.tool_calls) && turn.tool_calls.length > 0)),
  );
}

/** Whether a row is a conversation with tools, or a rollout of several turns, with its reward; `trl` reads a completion of one message. */
const isRewarded = (row: Row) =>
  'reward' in row && (hasTools(row) || (isRollout(row) && (row.completion as readonly unknown[]).length > 1));

const isRollout = ({ prompt, completion }: Row) => Array.isArray(prompt) && Array.isArray(completion);

export const isConversation = (row: Row) =>
  Array.isArray(row.messages) || Array.isArray(row.conversations) || isRollout(row);

function givenMessages(row: Row): readonly unknown[] {
  if (Array.isArray(row.messages)) return row.messages;
  if (Array.isArray(row.conversations)) return row.conversations;
  return [...(row.prompt as readonly unknown[]), ...(row.completion as readonly unknown[])];
}

const isTurn = (turn: unknown): turn is Row =>
  isRow(turn) && ['assistant', 'gpt', 'function_call'].includes(String(turn.role ?? turn.from));

const ownScore = (turn: Row) => turn.label ?? turn.reward ?? undefined;

/** Whether something in the row says which turns are right. */
function labelsTurns(row: Row): boolean {
  return (
    BY_TURN.some((column) => Array.isArray(row[column])) ||
    givenMessages(row).some((turn) => isTurn(turn) && ownScore(turn) !== undefined) ||
    rewardsOfTrajectory(row) !== undefined
  );
}

function conversationOf(row: Row): { given: readonly unknown[]; messages: readonly Message[] } {
  if (!isConversation(row))
    throw new BadRow(
      'missing_column',
      "there is no conversation; expected column 'messages' or 'conversations', or the lists 'prompt' and 'completion'",
    );
  const given = givenMessages(row);
  const where = isRollout(row)
    ? "columns 'prompt' and 'completion'"
    : `column '${Array.isArray(row.messages) ? 'messages' : 'conversations'}'`;
  const read = messagesOf(given.map(withReadCalls), where, true).map((message, i) =>
    withObjects(message, `message ${i + 1} of ${where}`),
  );
  const system = optionalText(row, 'system');
  return { given, messages: system === undefined ? read : [{ role: 'system', content: system }, ...read] };
}

/** Reads calls that are JSON texts, as files keep them whose columns have one type. */
function withReadCalls(turn: unknown): unknown {
  if (!isRow(turn) || !Array.isArray(turn.tool_calls)) return turn;
  const calls = turn.tool_calls.map((call: unknown) =>
    typeof call === 'string' ? (json(call) ?? call) : call,
  );
  return { ...turn, tool_calls: calls };
}

/** The message with the arguments of its calls as objects, which templates read; OpenAI writes them as JSON in a text. */
function withObjects(message: Message, where: string): Message {
  if (message.tool_calls === undefined) return message;
  const read = callsOf(message).map(({ id, name, arguments: written }) => {
    const given =
      typeof written === 'string' && written.trim() !== '' ? json(written) : written === '' ? {} : written;
    if (!isRow(given))
      throw new BadRow(
        'bad_call',
        `the arguments of the call of ${name} in ${where} are ${describeValue(written)}; expected an object in JSON`,
      );
    return { ...(id === undefined ? {} : { id }), type: 'function', function: { name, arguments: given } };
  });
  return { ...message, tool_calls: read };
}

function json(text: string): unknown {
  return attempt(() => parseExact(text));
}

/** The tools of a row, in whichever column its program puts them. */
function toolsOf({ tools, tool_defs, info, oai_tools }: Row): unknown {
  const read = isRow(info) ? info : typeof info === 'string' ? json(info) : undefined;
  return tools ?? tool_defs ?? oai_tools ?? (isRow(read) ? read.oai_tools : undefined);
}

/**
 * Refuses results of no call, and calls of tools that the row does not describe.
 *
 * @throws BadRow with the message and the call
 */
export function checkCalls(messages: readonly Message[], tools: unknown): void {
  const names = Array.isArray(tools) ? tools.flatMap((tool: unknown) => toolName(tool)) : [];
  const called = new Set<string>();
  let calls = 0;
  messages.forEach((message, i) => {
    for (const { id, name } of callsOf(message)) {
      calls++;
      if (id !== undefined) called.add(id);
      if (names.length > 0 && !names.includes(name))
        throw new BadRow(
          'unknown_tool',
          `message ${i + 1} calls the tool ${JSON.stringify(name)}, and the row describes ${names.join(', ')}`,
        );
    }
    if (message.role !== 'tool') return;
    const { tool_call_id: of } = extrasOf(message as Row);
    const isOfNone =
      typeof of === 'string' && called.size > 0 ? !called.has(of) : calls === 0 && !before(messages, i);
    if (isOfNone)
      throw new BadRow(
        'no_call',
        `message ${i + 1} is the result of ${typeof of === 'string' ? `the call ${JSON.stringify(of)}` : 'a tool'}, and no turn before it calls it`,
      );
  });
}

/** Whether a turn comes before the message: some write their calls as text. */
const before = (messages: readonly Message[], i: number) =>
  messages.slice(0, i).some(({ role }) => role === 'assistant');

function toolName(tool: unknown): string[] {
  const described = isRow(tool) && isRow(tool.function) ? tool.function : tool;
  return isRow(described) && typeof described.name === 'string' ? [described.name] : [];
}

type TurnScore = number | { readonly label: StepLabel } | undefined;

/** Reads the reward or the label of each turn, where the row has one. */
function scoresOf(row: Row, given: readonly unknown[], count: number): readonly TurnScore[] {
  const column = BY_TURN.find((name) => Array.isArray(row[name]));
  const own = given.filter(isTurn).map(ownScore);
  const listed =
    column === undefined ? (rewardsOfTrajectory(row) ?? own) : (row[column] as readonly unknown[]);
  if (listed.length !== count)
    throw new BadRow(
      'label_count',
      `${column === undefined ? 'the row' : `column '${column}'`} has ${listed.length} labels, and the conversation has ${count} turns of the assistant; expected one for each`,
    );
  return listed.map((value, i) => {
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    return { label: labelValue(value, `the label of turn ${i + 1}`) };
  });
}

/** Rewards of the steps that verifiers saves; undefined where it gives none. */
function rewardsOfTrajectory({ trajectory }: Row): readonly unknown[] | undefined {
  if (!Array.isArray(trajectory) || trajectory.length === 0) return undefined;
  const rewards = trajectory.map((step: unknown) => (isRow(step) ? (step.reward ?? undefined) : undefined));
  return rewards.some((reward) => reward !== undefined) ? rewards : undefined;
}

function outcomeOf(row: Row, threshold: number): 1 | 0 | undefined {
  const column = OUTCOMES.find((name) => has(row, name));
  if (column === undefined) return undefined;
  const value = row[column];
  if (typeof value === 'number' && Number.isFinite(value)) return value >= threshold ? 1 : 0;
  return labelValue(value, `column '${column}'`) ?? undefined;
}
