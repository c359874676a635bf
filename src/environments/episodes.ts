/**
 * Episodes of an agent in an environment. Each goes on as its own sequence of requests to one generator: while it waits for a tool, its
 * row is not in the batch and others go on, and its beginning is found again among the cached prefixes.
 */

import { isDeepStrictEqual } from 'node:util';
import type { GenerateOptions, Generator } from '../generate/generator.js';
import { chatTokens } from '../generate/prompts.js';
import type { Sample } from '../generate/rows/sample-row.js';
import { invalid, StepTrainError } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { Message } from '../records/record.js';
import { callsOf, type DividedTurns } from '../records/turns.js';
import { warnOnce } from '../terminal/log.js';
import { openedReasoning } from '../tokenizer/chat-reply.js';
import { afterTurn } from '../tokenizer/chat-turns.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { readTurn } from './calls.js';
import {
  type AgentTurn,
  checkedOpening,
  checkedReply,
  type Environment,
  type Task,
  type TurnReply,
} from './environment.js';
import { atMost, within } from './limits.js';
import { unreadCallsSentence } from './unread-calls.js';

export interface EpisodeOptions
  extends Pick<
    GenerateOptions,
    'temperature' | 'topK' | 'topP' | 'minP' | 'seed' | 'iteration' | 'role' | 'signal'
  > {
  /** Episodes of each task. Default 1. */
  readonly n?: number;
  /** Numbers that key the random streams of tasks, and name their episodes. Default: their indices. */
  readonly promptIds?: readonly number[];
  /** Episodes that the caller has already: they are left out of the result. */
  readonly skip?: ((task: number, sample: number) => boolean) | undefined;
  /** Max turns of an episode. Default 8. */
  readonly maxTurns?: number;
  /** Max tokens of a turn. Default 256. */
  readonly maxNewTokens?: number;
  /** Max tokens of an episode. Default: as many as the model reads. */
  readonly maxLength?: number;
  /** Seconds that an environment may take for an answer. Default 30. */
  readonly timeout?: number;
  /** Turns of a task that its episodes begin with: the environment answers them again, and the model goes on after them. Default none. */
  readonly given?: ((task: number) => readonly GivenTurn[]) | undefined;
  /** Calls of the environment at a time. Default 64. */
  readonly concurrency?: number;
  /** Called with each episode when it has ended. */
  readonly onEpisode?: (episode: Episode) => void;
}

/** A turn that somebody has written, and what came back for it then. */
export type GivenTurn = DividedTurns['turns'][number];

/** A turn of an episode; one that was given has no tokens. */
export interface EpisodeTurn {
  /** All that was drawn, also the token that ended it. */
  readonly tokens: readonly number[];
  /** log p of each token at the temperature of sampling, over the whole vocabulary; in nats. */
  readonly logprobs: readonly number[];
  readonly message: Message;
  readonly results: readonly Message[];
  /** Tokens between this turn and the next one, which nobody drew. */
  readonly between: readonly number[];
  readonly reward?: number;
}

export interface Episode {
  /** Index of the task, and the number of the episode among those of the task. */
  readonly task: number;
  readonly sample: number;
  /** Messages before the first turn, and their tokens. */
  readonly prompt: readonly Message[];
  readonly promptIds: readonly number[];
  readonly turns: readonly EpisodeTurn[];
  /**
   * Why it ended: the environment was done; after `maxTurns`; for `maxNewTokens` or `maxLength`; or because the environment failed.
   */
  readonly finish: 'done' | 'turns' | 'length' | 'failed';
  /** The sentence of a failed one. */
  readonly failure?: string;
}

/**
 * Runs `n` episodes of each task, in the order of tasks and numbers; undefined if the signal stopped it. On the CPU an episode depends on
 * weights, seed, iteration, its task, its number and what its environment answers alone.
 *
 * @throws StepTrainError for a model that gives something that is not a number, and for options out of range; DataError for a template
 *   that does not read tools. An environment that fails ends its own episode alone
 */
export async function runEpisodes(
  generator: Generator,
  tokenizer: Tokenizer,
  environment: Environment,
  tasks: readonly Task[],
  options: EpisodeOptions & Pick<GenerateOptions, 'eosTokenIds'>,
): Promise<Episode[] | undefined> {
  const { n = 1, concurrency = 64, maxTurns = 8, timeout = 30, signal, onEpisode } = options;
  for (const [name, value] of Object.entries({ n, concurrency, maxTurns }))
    if (!(Number.isSafeInteger(value) && value > 0))
      throw invalid(`episodes: ${name}: expected a whole number above 0, found ${value}`);
  if (!(timeout > 0)) throw invalid(`episodes: timeout: expected seconds above 0, found ${timeout}`);
  const limit = atMost(concurrency);
  const asking = (what: string, call: () => unknown) => limit(() => within(timeout, what, call));
  const places = tasks
    .flatMap((_, task) => Array.from({ length: n }, (_, sample) => ({ task, sample })))
    .filter(({ task, sample }) => !options.skip?.(task, sample));
  const unread = unreadCallsSentence(tokenizer, environment.tools ?? [], options.eosTokenIds ?? []);
  if (unread !== undefined) warnOnce(unread);
  const run = { generator, tokenizer, environment, options, asking };
  const all = await Promise.all(
    places.map(async (place) => {
      const episode = await oneEpisode(run, place, tasks[place.task] as Task, n, maxTurns);
      if (!signal?.aborted) onEpisode?.(episode);
      return episode;
    }),
  );
  return signal?.aborted ? undefined : all;
}

interface Run {
  readonly generator: Generator;
  readonly tokenizer: Tokenizer;
  readonly environment: Environment;
  readonly options: EpisodeOptions & Pick<GenerateOptions, 'eosTokenIds'>;
  readonly asking: (what: string, call: () => unknown) => Promise<unknown>;
}

async function oneEpisode(
  { generator, tokenizer, environment, options, asking }: Run,
  place: Pick<Episode, 'task' | 'sample'>,
  task: Task,
  n: number,
  maxTurns: number,
): Promise<Episode> {
  const { maxLength = generator.longestSample, maxNewTokens = 256, signal, iteration = 0 } = options;
  const { tools = [] } = environment;
  const template = tools.length > 0 ? { tools } : {};
  const id = options.promptIds?.[place.task] ?? place.task;
  const name = `${iteration}-${id}-${place.sample}`;
  const turns: EpisodeTurn[] = [];
  let prompt: readonly Message[] = [];
  let promptIds: readonly number[] = [];
  const ended = (finish: Episode['finish'], failure?: string): Episode => ({
    ...{ ...place, prompt, promptIds, turns, finish },
    ...(failure === undefined ? {} : { failure }),
  });
  let begun = false;
  try {
    const opening = await failing(() => {
      begun = true;
      return asking('reset', () => environment.reset(task, name));
    }, checkedOpening);
    if (opening instanceof Failed) return ended('failed', opening.reason);
    prompt = opening.messages;
    const asked = chatTokens(tokenizer, prompt, template);
    promptIds = asked.ids;
    const opened = openedReasoning(asked.text)?.mark ?? '';
    const messages: Message[] = [...prompt];
    const replayed = await replay(options.given?.(place.task) ?? [], (turn) =>
      failing(() => asking('step', () => environment.step(turn, name)), checkedReply),
    );
    turns.push(...replayed.turns);
    if (replayed.finish) return ended(replayed.finish, replayed.failure);
    messages.push(...turns.flatMap(({ message, results }) => [message, ...results]));
    let ids = turns.length === 0 ? [...promptIds] : chatTokens(tokenizer, messages, template).ids;
    while (turns.length < maxTurns) {
      const room = Math.min(maxNewTokens, maxLength - ids.length);
      if (room < 1 || signal?.aborted) return ended('length');
      const sample = await drawn(
        generator,
        ids,
        room,
        tokenizer,
        options,
        (id * n + place.sample) * maxTurns + turns.length,
      );
      if (signal?.aborted) return ended('length');
      const { tokens, finishReason } = sample;
      const cut = finishReason === 'length';
      // A model may have more ids than its tokenizer.
      const said = (cut ? tokens : tokens.slice(0, -1)).filter((id) => id < tokenizer.vocabSize);
      const text = tokenizer.decode(said);
      const { message, turn, errors } = messageOf(opened, text, turns.length, tools);
      messages.push(message);
      const own = { tokens, logprobs: Array.from(sample.temperedLogprobs), message };
      if (cut) {
        turns.push({ ...own, results: [], between: [] });
        return ended('length');
      }
      // Calls that nobody can answer are answered here, and the model may try again.
      const reply: TurnReply | Failed =
        errors.length > 0 && turn.calls.length === 0
          ? { messages: [], done: false }
          : await failing(() => asking('step', () => environment.step(turn, name)), checkedReply);
      if (reply instanceof Failed) {
        turns.push({ ...own, results: [], between: [] });
        return ended('failed', reply.reason);
      }
      const results = [...(reply.messages ?? []), ...errors];
      const goesOn = reply.done !== true && turns.length + 1 < maxTurns;
      const after = goesOn ? afterTurn(tokenizer, messages, results, template) : '';
      const back = after === '' ? [] : tokenizer.encode(after, { continuation: true });
      // Results that leave no room for another turn are not read either.
      const hasRoom = ids.length + tokens.length + back.length < maxLength;
      const between = hasRoom ? back : [];
      turns.push({
        ...own,
        results,
        between,
        ...(reply.reward === undefined ? {} : { reward: reply.reward }),
      });
      if (reply.done) return ended('done');
      if (goesOn && !hasRoom) return ended('length');
      messages.push(...results);
      ids = [...ids, ...tokens, ...between];
    }
    return ended('turns');
  } finally {
    if (begun)
      await failing(
        () => asking('close', () => environment.close?.(name)),
        () => {},
      );
  }
}

interface Replayed {
  readonly turns: readonly EpisodeTurn[];
  /** Absent where the model goes on. */
  readonly finish?: 'done' | 'failed';
  readonly failure?: string;
}

/** Has the environment answer given turns again; one that answers otherwise than then is no place to go on from. */
async function replay(
  given: readonly GivenTurn[],
  step: (turn: AgentTurn) => Promise<TurnReply | Failed>,
): Promise<Replayed> {
  const turns: EpisodeTurn[] = [];
  for (const { message, results: then } of given) {
    const reply = await step({ text: message.content, calls: callsOf(message) });
    if (reply instanceof Failed) return { turns, finish: 'failed', failure: reply.reason };
    const { messages: results = [], reward, done } = reply;
    const said = (list: readonly Message[]) => list.map(({ content }) => content.trim());
    if (!done && !isDeepStrictEqual(said(results), said(then)))
      return {
        turns,
        finish: 'failed',
        failure: `it answers turn ${turns.length + 1} with ${shown(said(results))}, and the conversation has ${shown(said(then))}`,
      };
    const own = { tokens: [], logprobs: [], between: [], message, results };
    turns.push({ ...own, ...(reward === undefined ? {} : { reward }) });
    if (done) return { turns, finish: 'done' };
  }
  return { turns };
}

/** The mistake of an environment, in one sentence. */
class Failed {
  constructor(readonly reason: string) {}
}

/** A checked answer, or the failure that ends one episode. */
async function failing<T>(ask: () => Promise<unknown>, check: (answer: unknown) => T): Promise<T | Failed> {
  try {
    return check(await ask());
  } catch (error) {
    return new Failed(error instanceof Error ? error.message : String(error));
  }
}

async function drawn(
  generator: Generator,
  ids: readonly number[],
  maxNewTokens: number,
  tokenizer: Tokenizer,
  {
    temperature,
    topK,
    topP,
    minP,
    seed,
    iteration,
    role,
    signal,
    eosTokenIds,
  }: EpisodeOptions & Pick<GenerateOptions, 'eosTokenIds'>,
  key: number,
): Promise<Sample> {
  const request = { temperature, topK, topP, minP, seed, iteration, role, signal, eosTokenIds, tokenizer };
  const given = Object.fromEntries(Object.entries(request).filter(([, value]) => value !== undefined));
  const { samples } = generator.generate([ids], { ...given, maxNewTokens, promptIds: [key] });
  const [[sample] = []] = await samples;
  if (sample && sample.finishReason !== 'error') return sample;
  throw new StepTrainError(
    'E_NONFINITE',
    'episodes: a logit of the model is NaN or infinite, so there is no token to draw',
  );
}

/** The drawn text as a message, what the environment sees of it, and answers to calls that it cannot answer. */
function messageOf(opened: string, text: string, turn: number, tools: readonly unknown[]) {
  const thought = text.lastIndexOf('</think>');
  const at = thought < 0 ? 0 : thought + '</think>'.length;
  const { text: said, calls: found, unread } = readTurn(text.slice(at), tools);
  const calls = found.map((call, i) => ({ id: `call${turn}_${i}`, ...call }));
  const known = tools.map((tool) => {
    const { function: described = tool } = tool as { function?: unknown };
    return (described as { name?: unknown }).name;
  });
  const answerable = calls.filter(({ name }) => known.includes(name));
  const errors: Message[] = [
    ...calls
      .filter(({ name }) => !known.includes(name))
      .map(({ id, name }) => ({
        role: 'tool',
        content: `there is no tool ${name}; there ${known.length === 0 ? 'is none' : `are ${known.join(', ')}`}`,
        tool_call_id: id,
        name,
      })),
    ...unread.map((content) => ({ role: 'tool', content })),
  ];
  const message: Message = {
    role: 'assistant',
    content: opened + text.slice(0, at) + said,
    ...(calls.length === 0
      ? {}
      : {
          tool_calls: calls.map(({ id, name, arguments: given }) => ({
            id,
            type: 'function',
            function: { name, arguments: given },
          })),
        }),
  };
  return { message, turn: { text: said, calls: answerable }, errors };
}

/** An episode as a row of `data.source: turns`: its conversation, the rewards of its turns and their sum. */
export function episodeRow(
  episode: Episode,
  tools: readonly unknown[] = [],
): Readonly<Record<string, unknown>> {
  const { prompt, turns, finish, failure } = episode;
  return {
    messages: [...prompt, ...turns.flatMap(({ message, results }) => [message, ...results])],
    ...(tools.length > 0 ? { tools } : {}),
    turn_rewards: turns.map(({ reward }) => reward ?? null),
    reward: turns.reduce((sum, { reward = 0 }) => sum + reward, 0),
    finish,
    ...(failure === undefined ? {} : { failure }),
  };
}
