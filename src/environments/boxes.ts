/** A small world with a hidden state: a note says which box holds the coin, and only who reads it first can know. */
import type { Message } from '../records/record.js';
import { type Environment, failure } from './environment.js';

const tool = (name: string, description: string, properties: object) => ({
  type: 'function',
  function: {
    name,
    description,
    parameters: { type: 'object', properties, required: Object.keys(properties) },
  },
});

const TOOLS = [
  tool('read_note', 'Reads the note on the table.', {}),
  tool('open_box', 'Opens a box, which ends the search.', { number: { type: 'integer' } }),
];

interface World {
  readonly boxes: number;
  readonly coin: number;
  turns: number;
}

/** Turns after which the search is over. */
const MAX_TURNS = 6;

/**
 * A task is `{ boxes, coin }`: how many boxes there are, and the number of the one with the coin, from 1; or a problem that names the one
 * and an answer that is the other. The last turn has the reward 1
 * where the opened box holds the coin, else 0. An early turn decides: without the note the chance is one in `boxes`.
 */
export function boxesEnvironment(): Environment {
  const worlds = new Map<string, World>();
  return {
    tools: TOOLS,
    reset(task, episode) {
      const { boxes = numberIn(task.problem), coin = numberIn(task.answer) } = task;
      const isWorld = isWhole(boxes) && boxes >= 2 && isWhole(coin) && coin >= 1 && coin <= boxes;
      if (!isWorld)
        throw failure('boxes needs a task with boxes, at least 2, and coin, the number of one of them');
      worlds.set(episode, { boxes, coin, turns: 0 });
      const content =
        typeof task.problem === 'string'
          ? task.problem
          : `One of ${boxes} boxes holds a coin. A note lies on the table. Find the coin.`;
      return { messages: [{ role: 'user', content }] };
    },
    step({ calls }, episode) {
      const world = worlds.get(episode) as World;
      world.turns++;
      const [call] = calls;
      const result = (content: string): Message => ({
        role: 'tool',
        content,
        ...(call?.id === undefined ? {} : { tool_call_id: call.id }),
        ...(call ? { name: call.name } : {}),
      });
      if (call === undefined) return { done: true, reward: 0 };
      const { number } = (call.arguments ?? {}) as { number?: unknown };
      if (call.name === 'open_box' && isWhole(number)) {
        const found = number === world.coin;
        return {
          messages: [result(found ? 'The coin is here.' : 'The box is empty.')],
          done: true,
          reward: found ? 1 : 0,
        };
      }
      const said =
        call.name === 'read_note'
          ? `The coin is in box ${world.coin}.`
          : call.name === 'open_box'
            ? 'expected {"number": a whole number}'
            : `there is no tool ${call.name}; there are read_note and open_box`;
      const isOver = world.turns >= MAX_TURNS;
      return { messages: [result(said)], done: isOver, ...(isOver ? { reward: 0 } : {}) };
    },
    close: (episode) => void worlds.delete(episode),
  };
}

const numberIn = (value: unknown) => Number(/\d+/.exec(String(value ?? ''))?.[0] ?? Number.NaN);

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value);
