// Episodes over turns: the tokens of a conversation, what environments may do wrong, and limits.
import { describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { boxesEnvironment } from '../../src/environments/boxes.js';
import { calculatorEnvironment } from '../../src/environments/calculator.js';
import type { Environment } from '../../src/environments/environment.js';
import { type EpisodeOptions, episodeRow, runEpisodes } from '../../src/environments/episodes.js';
import { Generator } from '../../src/generate/generator.js';
import { openDevice } from '../../src/runtime/device.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { chatModel, END_OF_TURN } from '../generate/chat-model.js';

const TEMPLATE =
  '{% for t in tools or [] %}{{ t.function.name }};{% endfor %}' +
  '{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>{% endfor %}' +
  '{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}';

const call = (name: string, given: object) =>
  `<tool_call>${JSON.stringify({ name, arguments: given })}</tool_call>`;

/** A generator that writes what `say` gives for the text so far; null: it is cut off. */
function scripted(tokenizer: Tokenizer, say: (asked: string) => string | null): Generator {
  return {
    longestSample: 4000,
    generate: ([ids]: readonly (readonly number[])[]) => {
      const text = say(tokenizer.decode(ids ?? []));
      const tokens = text === null ? tokenizer.encode('cut') : [...tokenizer.encode(text), END_OF_TURN];
      const sample = {
        tokens,
        temperedLogprobs: new Float32Array(tokens.length).fill(-1),
        finishReason: text === null ? 'length' : 'stop',
      };
      return { samples: Promise.resolve([[sample]]) };
    },
  } as unknown as Generator;
}

async function episodesOf(
  say: (asked: string) => string | null,
  environment: Environment,
  tasks: readonly object[],
  options: EpisodeOptions = {},
) {
  const tokenizer = await loadTokenizer(await chatModel(TEMPLATE));
  const found = await runEpisodes(scripted(tokenizer, say), tokenizer, environment, tasks as never, {
    ...options,
    eosTokenIds: [END_OF_TURN],
  });
  return { tokenizer, episodes: found ?? [] };
}

/** Reads the note, then opens the box that it names. */
const finder = (asked: string) => {
  const box = /coin is in box (\d+)/.exec(asked)?.[1];
  return box === undefined ? `Look. ${call('read_note', {})}` : call('open_box', { number: Number(box) });
};

describe('runEpisodes', () => {
  it('goes on after a call with the tokens that were drawn and what the template writes between', async () => {
    const environment = boxesEnvironment();
    const { tokenizer, episodes } = await episodesOf(finder, environment, [{ boxes: 4, coin: 3 }]);
    const [episode] = episodes;
    expect(episode).toMatchObject({
      finish: 'done',
      turns: [
        { message: { content: 'Look.' }, results: [{ role: 'tool', content: 'The coin is in box 3.' }] },
        { results: [{ role: 'tool', content: 'The coin is here.' }], reward: 1 },
      ],
    });
    const ids = [
      ...(episode?.promptIds ?? []),
      ...(episode?.turns.flatMap(({ tokens, between }) => [...tokens, ...between]) ?? []),
    ];
    expect(tokenizer.decode(ids)).toBe(
      'read_note;open_box;<|turn|>user\nOne of 4 boxes holds a coin. A note lies on the table. Find the coin.<|end|><|turn|>assistant\n' +
        `Look. ${call('read_note', {})}<|end|><|turn|>tool\nThe coin is in box 3.<|end|><|turn|>assistant\n` +
        `${call('open_box', { number: 3 })}<|end|>`,
    );
    const row = episode && episodeRow(episode, environment.tools);
    expect(row).toMatchObject({
      turn_rewards: [null, 1],
      reward: 1,
      finish: 'done',
      messages: { length: 5 },
    });
  });

  it('computes for a problem exactly, and pays for the answer', async () => {
    const say = (asked: string) =>
      asked.includes('tool\n') ? 'It is 9.5.' : call('calculator', { expression: '(12 + 7) / 2' });
    const tasks = [
      { problem: 'Half of 12 and 7?', answer: '9.5' },
      { problem: 'Half of 12 and 7?', answer: '9' },
    ];
    const { episodes } = await episodesOf(say, calculatorEnvironment(), tasks);
    expect(
      episodes.map(({ turns }) => turns.map(({ reward, results }) => [reward, results[0]?.content])),
    ).toEqual([
      [
        [undefined, '9.5'],
        [1, undefined],
      ],
      [
        [undefined, '9.5'],
        [0, undefined],
      ],
    ]);
  });

  it('answers an unknown tool and a call that is no JSON, and lets the model try again', async () => {
    const said = [call('search', {}), '<tool_call>{"name": read}</tool_call>', call('read_note', {})];
    const { episodes } = await episodesOf(
      (asked) => said[asked.split('assistant\n').length - 2] ?? 'Done',
      boxesEnvironment(),
      [{ boxes: 2, coin: 1 }],
    );
    expect(episodes[0]?.turns.map(({ results }) => results.map(({ content }) => content))).toEqual([
      ['there is no tool search; there are read_note, open_box'],
      ['the call "{\\"name\\": read}" is no {"name": …, "arguments": {…}} in JSON'],
      ['The coin is in box 1.'],
      [],
    ]);
    expect(episodes[0]).toMatchObject({ finish: 'done' });
  });

  it('ends one that never ends, one that is cut off, and one for which there is no room', async () => {
    const endless = await episodesOf(
      () => call('read_note', {}),
      boxesEnvironment(),
      [{ boxes: 2, coin: 1 }],
      { maxTurns: 3 },
    );
    expect(endless.episodes[0]).toMatchObject({ finish: 'turns', turns: { length: 3 } });
    const cut = await episodesOf(() => null, boxesEnvironment(), [{ boxes: 2, coin: 1 }]);
    expect(cut.episodes[0]).toMatchObject({ finish: 'length', turns: [{ results: [], between: [] }] });
    const narrow = await episodesOf(finder, boxesEnvironment(), [{ boxes: 2, coin: 1 }], { maxLength: 10 });
    expect(narrow.episodes[0]).toMatchObject({ finish: 'length', turns: [] });
    // A result that leaves no room for another turn ends the episode, whose tokens are those up to it.
    const talkative: Environment = {
      ...boxesEnvironment(),
      step: () => ({ messages: [{ role: 'tool', content: 'note '.repeat(200) }] }),
    };
    const full = await episodesOf(() => call('read_note', {}), talkative, [{ boxes: 2, coin: 1 }], {
      maxLength: 400,
    });
    expect(full.episodes[0]).toMatchObject({ finish: 'length', turns: [{ between: [] }] });
    expect(full.episodes[0]?.turns).toHaveLength(1);
  });

  it('ends the episode alone whose environment fails, answers late or says what is no answer', async () => {
    const closed: string[] = [];
    const environment: Environment = {
      tools: boxesEnvironment().tools ?? [],
      reset: ({ kind }) => {
        if (kind === 'reset') throw new Error('no such task');
        return kind === 'bad' ? ({} as never) : { messages: [{ role: 'user', content: String(kind) }] };
      },
      step: async (_, episode) => {
        if (episode.endsWith('-1-0')) throw new Error('out of order');
        if (episode.endsWith('-2-0')) return await new Promise(() => {});
        if (episode.endsWith('-3-0')) return { messages: 'no list' } as never;
        return { done: true, reward: 1 };
      },
      close: (episode) => void closed.push(episode),
    };
    const kinds = ['reset', 'step', 'late', 'odd', 'bad', 'good'].map((kind) => ({ kind }));
    const { episodes } = await episodesOf(() => 'Hm', environment, kinds, { timeout: 0.05 });
    expect(episodes.map(({ finish, failure }) => [finish, failure])).toEqual([
      ['failed', 'no such task'],
      ['failed', 'out of order'],
      ['failed', 'step: no answer within 0.05 s'],
      ['failed', expect.stringMatching(/^step: expected \{"messages": .*, found /)],
      ['failed', expect.stringMatching(/^reset: expected \{"messages": /)],
      ['done', undefined],
    ]);
    expect(closed.sort()).toEqual([0, 1, 2, 3, 4, 5].map((task) => `0-${task}-0`));
  });

  it('asks the environment as often at a time as it may be', async () => {
    let [now, most] = [0, 0];
    const environment: Environment = {
      reset: () => ({ messages: [{ role: 'user', content: 'x' }] }),
      step: async () => {
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, 2));
        now--;
        return { done: true };
      },
    };
    await episodesOf(() => 'a', environment, new Array(9).fill({}), { concurrency: 3 });
    expect(most).toBe(3);
  });

  it('draws the same with a real model whatever the environment takes, and other numbers for each episode', async () => {
    const directory = await chatModel(TEMPLATE);
    const device = openDevice('cpu');
    const model = await loadModel(device, directory);
    const tokenizer = await loadTokenizer(directory);
    const environment = (delay: (episode: string) => number): Environment => ({
      reset: () => ({ messages: [{ role: 'user', content: 'x' }] }),
      step: async (_, episode) => {
        await new Promise((resolve) => setTimeout(resolve, delay(episode)));
        return { messages: [{ role: 'user', content: 'more' }] };
      },
    });
    const run = async (delay: (episode: string) => number, concurrency: number) => {
      const generator = new Generator(model.decoder, { cacheBytes: 4_000_000 });
      const options = {
        n: 3,
        maxTurns: 3,
        maxNewTokens: 6,
        seed: 5,
        concurrency,
        eosTokenIds: [] as number[],
        stop: [],
      };
      const found = await runEpisodes(generator, tokenizer, environment(delay), [{}, {}], {
        ...options,
        eosTokenIds: [...Array(200).keys()],
      });
      generator.dispose();
      return found?.map(({ turns }) => turns.map(({ tokens }) => tokens));
    };
    const one = await run(() => 0, 64);
    expect(await run((episode) => (episode.endsWith('1') ? 15 : 1), 1)).toEqual(one);
    expect(new Set(one?.map((turns) => JSON.stringify(turns))).size).toBeGreaterThan(3);
    model.dispose();
    device.dispose();
  });
});
