// Judges that reason before their verdicts: what they read and write, beside transformers; votes; what cannot be parsed.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { evaluateCorrection } from '../../../src/eval/correction.js';
import type { StepRecord } from '../../../src/records/record.js';
import { openDevice } from '../../../src/runtime/device.js';
import { type AskOptions, type GenerativeLayout, votesBy } from '../../../src/scoring/generative/layouts.js';
import { openScorer } from '../../../src/scoring/open.js';
import type { Solution } from '../../../src/scoring/scorer.js';
import { loadTokenizer } from '../../../src/tokenizer/load.js';
import type { Tokenizer } from '../../../src/tokenizer/tokenizer.js';
import { GOLDEN, twin } from '../twins.js';

const { solutions } = JSON.parse(readFileSync(new URL('scores.json', GOLDEN), 'utf8')) as {
  readonly solutions: readonly Solution[];
};
const { most, answers } = JSON.parse(readFileSync(new URL('answers.json', GOLDEN), 'utf8')) as {
  readonly most: number;
  readonly answers: Readonly<Record<string, readonly (readonly (readonly [string, string])[])[]>>;
};

const LONG = { max_position_embeddings: 4096 };
const model = (name: string) => twin([name, 'llama3', 'llama', name, LONG, {}]);

function device() {
  const own = openDevice('cpu', { threads: 1 });
  onTestFinished(() => own.dispose());
  return own;
}

describe('a generative judge', () => {
  it.each([
    ['think_prm', 'ThinkPRM-1.5B'],
    ['gen_prm', 'GenPRM-1.5B'],
  ] as const)('%s asks and writes what its own way does with transformers', async (layout, name) => {
    const directory = await model(name);
    const tokenizer = await loadTokenizer(directory);
    const wanted = answers[layout]!;
    const asked = await Promise.all(
      solutions.map(async (solution, i) => {
        const prompts: (readonly [string, string])[] = [];
        const ask = async (prompt: string, _: AskOptions) => {
          const answer = wanted[i]![prompts.length]![1];
          prompts.push([prompt, answer]);
          return [answer];
        };
        await votesBy(layout, tokenizer)(solution, ask, 1);
        return prompts;
      }),
    );
    expect(asked).toEqual(wanted);
    // The real thing writes them too, opened by its name, and no box is found in what random weights write.
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify(card(layout, most)));
    const scorer = await openScorer(device(), directory, { dtype: 'f32' });
    onTestFinished(() => scorer.dispose());
    const found = await scorer.score(solutions);
    expect(found?.map(({ scores }) => scores)).toEqual(solutions.map(({ steps }) => steps.map(() => null)));
    const calls = wanted.flat();
    const bytes = calls.map(([prompt]) => tokenizer.encode(prompt, { addSpecialTokens: false }).length);
    const written = calls.map((_, i) => (layout === 'gen_prm' && i % 2 === 1 ? 20 : most));
    expect(scorer.report?.()).toEqual({
      ...{ answers: calls.length, verdicts: 0, unparsed: solutions.flatMap(({ steps }) => steps).length },
      written: written.reduce((a, b) => a + b),
    });
    const tokens = found!.reduce((sum, own) => sum + (own.tokens ?? 0), 0);
    expect(tokens).toBe([...bytes, ...written].reduce((a, b) => a + b));
  });

  it.each([
    ['ThinkPRM-1.5B', 'think_prm'],
    ['GenPRM-7B', 'gen_prm'],
  ])('%s is known by its name', async (name) => {
    const scorer = await openScorer(device(), await model(name), { dtype: 'f32', votes: 3 });
    expect(scorer).toMatchObject({ unit: 'step', scale: 'probability', threshold: 0.5 });
    scorer.dispose();
  });

  it('draws votes that depend on their own solution alone', async () => {
    const directory = await model('own');
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify(card('pattern', 3)));
    const scorer = await openScorer(device(), directory, { dtype: 'f32', votes: 64 });
    onTestFinished(() => scorer.dispose());
    const both = (await scorer.score(solutions))!;
    const [last] = (await scorer.score([solutions[1]!]))!;
    expect(last).toEqual(both[1]);
    // Random bytes: halves of characters, now and then a letter after one.
    const shares = both.flatMap(({ scores }) => scores.filter((share) => share !== null));
    expect(shares.length).toBeGreaterThan(0);
    const { answers: asked, verdicts, unparsed } = scorer.report!() as Record<string, number>;
    expect(asked).toBe(3 * 64);
    expect(verdicts).toBeGreaterThan(shares.length);
    expect(verdicts! + unparsed!).toBeLessThanOrEqual(64 * (2 + 3 + 3));
  });

  it('says how many verdicts could not be read where it is evaluated', async () => {
    const directory = await model('own');
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify(card('pattern', 3)));
    const test = solutions.map(({ problem, steps }) => ({
      ...{ problem, steps: steps.map((text, i) => ({ text, label: i % 2, kind: 'normal' })) },
    })) as unknown as StepRecord[];
    const { report } = await evaluateCorrection(device(), {
      ...{ judge: { source: directory, votes: 64 }, test, validation: [], positivePrior: undefined },
      ...{ method: 'none', data: {}, invalidAsWrong: true },
    });
    expect(report.warnings?.at(-1)).toMatch(
      /^\d+ of \d+ verdicts in 128 answers could not be read, and have no vote$/,
    );
  });

  it('is refused with settings that say too little, and votes where nothing is written', async () => {
    const directory = await model('own');
    const { pattern: _, ...judge } = card('pattern', 8).judge;
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify({ method: 'published', judge }));
    await expect(openScorer(device(), directory)).rejects.toThrow(
      'judge.pattern: must be there for the layout pattern, and for it alone',
    );
    const asTrl = { kind: 'published', layout: 'trl', max_length: 64, threshold: 'greedy' };
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify({ method: 'trl', judge: asTrl }));
    await expect(openScorer(device(), directory, { votes: 3 })).rejects.toThrow(
      'gives one probability to each step and writes no answers to vote with',
    );
  });
});

function card(layout: GenerativeLayout, tokens: number) {
  const pattern = { request: '{problem}\n{steps}', verdict: '\ufffd{verdict}', words: ['\ufffd', 't'] };
  return {
    method: 'published',
    judge: {
      ...{ kind: 'generative', layout, votes: 1, temperature: 0.7, top_p: 1, max_new_tokens: tokens },
      ...{ max_length: 4096, threshold: 'greedy' },
      ...(layout === 'pattern' ? { pattern } : {}),
    },
  } as const;
}

describe('votes', () => {
  const tokenizer = { applyChatTemplate: () => '' } as unknown as Tokenizer;
  const solution = { problem: 'p', steps: ['one', 'two'] };

  it('of GenPRM are read from the judgement alone, and the first goes on', async () => {
    const seen: string[] = [];
    const messages: string[] = [];
    const own = {
      applyChatTemplate: (of: readonly { readonly content: string }[]) => {
        messages.push(of.at(-1)!.content);
        return '';
      },
    } as unknown as Tokenizer;
    const ask = async (prompt: string, { n }: AskOptions) => {
      seen.push(prompt);
      if (!prompt.endsWith('\\boxed'))
        return Array.from({ length: n }, (_, i) => `${i} \\boxed{Yes}</analyze>\n`);
      const [vote] = /\d(?= \\boxed\{Yes\}<)/.exec(prompt)!;
      return [{ 0: '{No}$\n</output>\n', 1: '{Yes}$\n</output>\n', 2: '{42}$' }[vote]!];
    };
    expect(await votesBy('gen_prm', own)(solution, ask, 3)).toEqual([
      [0, 0],
      [1, 1],
      [null, null],
    ]);
    expect(seen).toHaveLength(8);
    expect(messages).toEqual(['p\none', 'two']);
  });

  it('of ThinkPRM end with the first wrong step', async () => {
    const ask = async (_: string, { n, stop }: AskOptions) => {
      expect([n, stop]).toEqual([2, ['Is the solution correct?', '</think>']]);
      return ['Step 1: \\boxed{incorrect}', 'Step 1: \\boxed{correct} Step 2: \\boxed{correct}</think>'];
    };
    expect(await votesBy('think_prm', tokenizer)(solution, ask, 2)).toEqual([
      [0, null],
      [1, 1],
    ]);
  });
});
