/**
 * Labels of turns from a model's own episodes (Math-Shepherd's way, over turns): the turns up to each one are played again in the
 * environment, from there k episodes go on, and c of them are solved; hard label 1[c > 0], soft label c / k.
 */
import type { Model } from '../../api/model.js';
import type { Environment } from '../../environments/environment.js';
import { type Episode, runEpisodes } from '../../environments/episodes.js';
import { badOption, DataError } from '../../files/data-error.js';
import { Generator } from '../../generate/generator.js';
import type { SamplingOptions } from '../../generate/options.js';
import { roomToGenerate } from '../../generate/room.js';
import { defined } from '../../native/defined.js';
import type { StepLabel, StepRecord } from '../../records/record.js';
import { messagesOfTurns, type Turns, turnMessage } from '../../records/turns.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

export interface TurnSolution {
  readonly problem: string;
  readonly turns: Turns;
  readonly answer?: string | undefined;
  readonly outcome?: 0 | 1 | undefined;
  /** `out.jsonl, line 3`, for errors. */
  readonly where: string;
  /** Key of the random numbers. */
  readonly index: number;
}

/** `maxNewTokens` counts those of a turn. */
export interface TurnLabelOptions
  extends Pick<SamplingOptions, 'temperature' | 'topP' | 'topK' | 'minP' | 'seed' | 'maxNewTokens'> {
  /** Episodes from each turn on. */
  readonly k: number;
  /** Max turns of an episode, those that are played again included. Default 8, or as many more than the conversation has. */
  readonly maxTurns?: number;
  readonly maxRows?: number | undefined;
  readonly eosTokenIds: readonly number[];
  readonly signal?: AbortSignal;
}

/** The conversation with labels and, of completions, scores by turn. */
export function labelledTurns(
  { problem, turns, answer, outcome }: TurnSolution,
  labels: readonly StepLabel[],
  {
    scores = [],
    outcome: found,
  }: { readonly scores?: readonly (number | undefined)[]; readonly outcome?: 0 | 1 | undefined } = {},
): StepRecord {
  const { prompt, tools, chat_template_kwargs, steps } = turns;
  return defined<StepRecord>({
    problem,
    prompt,
    tools,
    chat_template_kwargs,
    gold_answer: answer,
    steps: steps.map(({ score: _, ...step }, i) => ({
      ...step,
      label: labels[i] ?? null,
      ...(scores[i] === undefined ? {} : { score: scores[i] }),
    })),
    turns: true,
    outcome: found ?? outcome,
  });
}

/** Max turns of a conversation that are labelled: their number is part of a random key. */
const MAX_TURNS = 256;

/**
 * The conversations with labels and scores by turn, and with the outcome that the environment gives; undefined if the signal stopped it.
 *
 * @throws DataError where the environment answers a turn otherwise than the row says, with the place of the row
 */
export async function turnRolloutLabels(
  { decoder, adapter }: Pick<Model, 'decoder' | 'adapter'>,
  tokenizer: Tokenizer,
  environment: Environment,
  solutions: readonly TurnSolution[],
  { k, maxTurns = 8, maxRows, signal, ...sampling }: TurnLabelOptions,
): Promise<StepRecord[] | undefined> {
  const prefixes = solutions.flatMap((solution, i) =>
    solution.turns.steps.slice(0, MAX_TURNS).map((_, h) => ({ solution, i, h })),
  );
  if (prefixes.length === 0) return [];
  const longest = Math.max(...prefixes.map(({ h }) => h + 1));
  const texts = prefixes.map(({ solution }) => messagesOfTurns(solution.turns));
  const ids = texts.map((messages) => tokenizer.encode(messages.map(({ content }) => content).join('\n')));
  const given = Object.fromEntries(Object.entries(sampling).filter(([, value]) => value !== undefined));
  const options = { ...(given as Parameters<typeof runEpisodes>[4]), n: k };
  using generator = new Generator(
    decoder,
    roomToGenerate(decoder, ids, { ...options, ...defined({ maxRows }) }),
  );
  const episodes = await runEpisodes(
    generator,
    tokenizer,
    environment,
    prefixes.map(({ solution: { problem, answer } }) => defined({ problem, answer })),
    {
      ...options,
      maxTurns: longest + maxTurns,
      promptIds: prefixes.map(({ solution, h }) => (solution.index * MAX_TURNS + h) % 2 ** 32),
      given: (task) => {
        const { solution, h } = prefixes[task] as (typeof prefixes)[number];
        return solution.turns.steps
          .slice(0, h + 1)
          .map((step) => ({ message: turnMessage(step), results: step.results ?? [] }));
      },
      role: adapter ? { adapter } : {},
      ...(signal ? { signal } : {}),
    },
  );
  if (!episodes) return undefined;
  const solved: number[] = prefixes.map(() => 0);
  const ends = new Map<number, 0 | 1>();
  for (const episode of episodes) {
    const { solution, i, h } = prefixes[episode.task] as (typeof prefixes)[number];
    refuseFailed(episode, solution);
    const isSolved = rewardOf(episode) >= 0.5;
    if (isSolved) solved[episode.task] = (solved[episode.task] as number) + 1;
    if (episode.finish === 'done' && episode.turns.length === h + 1 && h + 1 === solution.turns.steps.length)
      ends.set(i, isSolved ? 1 : 0);
  }
  return solutions.map((solution, i) => {
    const own = prefixes.flatMap((prefix, p) => (prefix.i === i ? [solved[p] as number] : []));
    const scores = own.map((count) => count / k);
    return labelledTurns(
      solution,
      own.map((count) => (count > 0 ? 1 : 0)),
      { scores, outcome: ends.get(i) },
    );
  });
}

const rewardOf = ({ turns }: Episode) => turns.reduce((sum, { reward = 0 }) => sum + reward, 0);

function refuseFailed({ finish, failure }: Episode, { where }: TurnSolution): void {
  if (finish === 'failed') throw new DataError('row', `${where}: the environment failed: ${failure}`);
}

/** @throws DataError for a row that is no conversation */
export function turnsOf<Row extends { readonly turns?: Turns | undefined }>(
  solution: Row,
  where: string,
  option: string,
): Row & { readonly turns: Turns } {
  if (solution.turns) return solution as Row & { readonly turns: Turns };
  throw badOption(`${where}: ${option} labels turns of conversations with tools, and this row is a solution`);
}
