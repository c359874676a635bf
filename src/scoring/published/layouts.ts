/** Layouts of published reward models of steps: the text around the steps, and the token at which each is scored. */
import { TRL_START, trlSegments } from '../../data/verdict.js';
import { segmentTokenizer } from '../../tokenizer/segments.js';
import type { ChatMessage, Tokenizer } from '../../tokenizer/tokenizer.js';
import type { Solution } from '../scorer.js';

/** The names that a card and messages use. */
export const PUBLISHED_LAYOUTS = [
  'qwen_prm',
  'reasonflux_prm',
  'skywork_prm',
  'reason_eval_7b',
  'reason_eval_34b',
  'math_shepherd',
  'math_psa',
  'rlhflow_prm',
  'trl',
] as const;
export type PublishedLayout = (typeof PUBLISHED_LAYOUTS)[number];

interface ReadSolution {
  readonly ids: readonly number[];
  /** The token at which each step's score is read. Fewer than steps, where a step contains the model's own mark. */
  readonly rows: readonly number[];
}

export interface Layout {
  /** `verdict`: two tokens of the language-model head. `classes`, `scalar`: outputs of a head of its own. */
  readonly head: 'verdict' | 'classes' | 'scalar';
  /** Tokens of the words for right and for wrong. */
  words?(tokenizer: Tokenizer): readonly [right: number, wrong: number];
  /** @param separator text that ends every step, for layouts that leave it open; default a line break */
  read(
    tokenizer: Tokenizer,
    solution: Pick<Solution, 'problem' | 'steps'>,
    separator?: string | undefined,
  ): ReadSolution;
}

/** `addSpecialTokens` puts a start token before the text where the tokenizer has one. */
const encode = (tokenizer: Tokenizer, text: string, addSpecialTokens = false) =>
  tokenizer.encode(text, { addSpecialTokens });

const lastToken = (tokenizer: Tokenizer, text: string) => encode(tokenizer, text).at(-1) as number;

const placesOf = (ids: readonly number[], token: number) =>
  ids.flatMap((id, place) => (id === token ? [place] : []));

/** `Step 1: ` before a step that has no number. */
const numbered = (step: string, index: number) =>
  /^\s*Step \d+\s*:/i.test(step) ? step : `Step ${index + 1}: ${step}`;

/** A mark after each step of the assistant's turn; the second of two classes is right. */
const marked = (before: readonly ChatMessage[]): Layout => ({
  head: 'classes',
  read(tokenizer, { problem, steps }) {
    const text = tokenizer.applyChatTemplate([
      ...before,
      { role: 'user', content: problem },
      { role: 'assistant', content: steps.map((step) => `${step}<extra_0>`).join('') },
    ]);
    const ids = encode(tokenizer, text);
    return { ids, rows: placesOf(ids, lastToken(tokenizer, '<extra_0>')) };
  },
});

/** Qwen2.5-Math-PRM. */
const qwen = marked([
  { role: 'system', content: 'Please reason step by step, and put your final answer within \\boxed{}.' },
]);

/** ReasonFlux-PRM-7B: the same without a message of its own before the problem. */
const reasonFlux = marked([]);

/** Skywork-o1-Open-PRM: a line for each step; the value at its line break is the log-odds. */
const skywork: Layout = {
  head: 'scalar',
  read(tokenizer, { problem, steps }) {
    const start = tokenizer.bosId === undefined ? [] : [tokenizer.bosId];
    const ids = [...start, ...encode(tokenizer, `${problem}\n`)];
    const end = lastToken(tokenizer, '\n');
    const rows = steps.map((step) => ids.push(...encode(tokenizer, step), end) - 1);
    return { ids, rows };
  },
};

/**
 * ReasonEval: the padding token parts the steps and is taken out again; classes are negative, neutral and positive, and neutral is
 * valid. `back`: the 7B model is read that many tokens before the last one of a step, as its own program does.
 */
const reasonEval = (back: number): Layout => ({
  head: 'classes',
  read(tokenizer, { problem, steps }) {
    const { padId = tokenizer.bosId } = tokenizer;
    const mark = padId === undefined ? '' : tokenizer.decode([padId]);
    const prompt = `Question:\n${problem}\nAnswer:\nLet's think step by step.\n`;
    const marked = encode(tokenizer, [prompt, ...steps, ''].join(mark), true);
    const ids: number[] = [];
    const rows: number[] = [];
    for (const [place, token] of marked.entries()) {
      const isStart = place === 0 && token === tokenizer.bosId;
      if (token === padId && !isStart) rows.push(ids.length - 1 - back);
      else ids.push(token);
    }
    return { ids, rows: rows.slice(1) };
  },
});

/** A tag after each step, at which the model says one of two words. */
const tagged = ({
  tag,
  between,
  words,
}: Readonly<Record<'tag' | 'between', string>> & { readonly words: readonly [string, string] }): Layout => ({
  head: 'verdict',
  words: (tokenizer) => [lastToken(tokenizer, words[0]), lastToken(tokenizer, words[1])],
  read(tokenizer, { problem, steps }) {
    const output = steps.map((step, i) => `${numbered(step, i)}${tag}`).join(between);
    const ids = encode(tokenizer, `${problem} ${output}`, true);
    return { ids, rows: placesOf(ids, lastToken(tokenizer, tag)) };
  },
});

/** RLHFlow's PRMs: each step is a turn of the user, answered by `+`; the score is read before that answer. */
const rlhflow: Layout = {
  head: 'verdict',
  words: (tokenizer) => [lastToken(tokenizer, '+'), lastToken(tokenizer, '-')],
  read(tokenizer, { problem, steps }) {
    const messages: ChatMessage[] = [];
    let ids: number[] = [];
    const rows = steps.map((step, i) => {
      messages.push({ role: 'user', content: i === 0 ? `${problem} ${step}` : step });
      ids = encode(tokenizer, tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true }));
      messages.push({ role: 'assistant', content: '+' });
      return ids.length - 1;
    });
    return { ids, rows };
  },
};

/** TRL's PRMTrainer (up to 1.13), see `trlSegments`: the second class at the separator is right. */
const trl: Layout = {
  head: 'classes',
  read(tokenizer, { problem, steps: texts }, separator = '\n') {
    const segments = trlSegments(problem, texts, separator);
    const { ids, steps } = segmentTokenizer(tokenizer)(segments, { specialTokens: TRL_START });
    return { ids: Array.from(ids), rows: steps.map(({ end }) => end - 1) };
  },
};

export const LAYOUTS: Readonly<Record<PublishedLayout, Layout>> = {
  qwen_prm: qwen,
  reasonflux_prm: reasonFlux,
  skywork_prm: skywork,
  reason_eval_7b: reasonEval(1),
  reason_eval_34b: reasonEval(0),
  math_shepherd: tagged({ tag: ' ки', between: '\n', words: ['+', '-'] }),
  math_psa: tagged({ tag: ' \n\n\n\n\n', between: ' ', words: [' +', ' -'] }),
  rlhflow_prm: rlhflow,
  trl,
};
