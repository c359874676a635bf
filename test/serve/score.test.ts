// /score: step scores of a verdict model and of a reward network, against whole sequences that are scored one by one.
import { describe, expect, it } from 'vitest';
import { loadModel, Model } from '../../src/api/model.js';
import { type VerdictTokenizer, verdictTokenizer } from '../../src/data/verdict.js';
import { withHead } from '../../src/models/adapter.js';
import { createAdapterOn } from '../../src/models/adapter-on-base.js';
import { openDevice } from '../../src/runtime/device.js';
import { rewardScorer } from '../../src/scoring/reward-network/scorer.js';
import type { Scorer } from '../../src/scoring/scorer.js';
import type { JudgeSettings } from '../../src/scoring/settings.js';
import { tellingUnlike, unlikeBy } from '../../src/scoring/unlike-training.js';
import { verdictScorer } from '../../src/scoring/verdict/scorer.js';
import { type RunningServer, serve } from '../../src/serve/server.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { lora } from './lora.js';
import { post } from './test-server.js';

const tokenizer = byteTokenizer();
const solutions = [
  { problem: '12;-6;+7', steps: ['12-6=6', '6+7=13'] },
  { problem: '3;+4', steps: ['3+4=8'] },
];

/** The tokens of step `step` with a word after it. */
function judged(
  verdicts: VerdictTokenizer,
  solution: (typeof solutions)[number],
  step: number,
  word: readonly number[],
) {
  const record = {
    ...solution,
    steps: solution.steps.map((text) => ({ text, label: null, kind: 'normal' as const })),
  };
  const { trunk, verdicts: places } = verdicts.solution(record, { steps: 'all' });
  return [...trunk.ids.slice(0, places[step]?.at), ...verdicts.tailIds, ...word];
}

const places = solutions.flatMap((solution) => solution.steps.map((_, step) => ({ solution, step })));

async function withServer(
  scorersOf: (model: Model) => Promise<Parameters<typeof serve>[0]['scorers']>,
  run: (server: RunningServer, model: Model) => Promise<void>,
): Promise<void> {
  const device = openDevice('cpu');
  const model = await loadModel(device, 'embedded');
  const scorers = await scorersOf(model);
  const server = await serve(
    { name: 'm', model, tokenizer, ...(scorers ? { scorers } : {}) },
    { port: 0, cacheBytes: 1_000_000 },
  );
  try {
    await run(server, model);
  } finally {
    await server.close(0);
    model.dispose();
    device.dispose();
  }
}

const unlike = unlikeBy({
  ...{ kind: 'verdict', max_length: 64, threshold: 'greedy', forms: ['1+1=2'] },
  prompt: { pos_word: '+', neg_word: '-', response_format: 'verdict', rationale_tokens: 64 },
} as JudgeSettings) as NonNullable<ReturnType<typeof unlikeBy>>;

const warningsOf = (json: unknown) =>
  (json as { data: { warnings?: string[] }[] }).data.map(({ warnings }) => warnings);

const scoresOf = (json: unknown) =>
  (json as { data: { scores: number[] }[] }).data.map(({ scores }) => scores);

it('gives the probability of the right word after each step', async () => {
  await withServer(
    async ({ decoder }) => ({ verdict: verdictScorer(decoder, { tokenizer }) }),
    async ({ url }, model) => {
      const { status, json } = await post(`${url}/score`, { solutions });
      expect(status).toBe(200);
      expect(json).toMatchObject({ object: 'list', model: 'verdict', scale: 'probability' });
      const verdicts = verdictTokenizer({}, tokenizer);
      const { positiveIds, negativeIds } = verdicts.template;
      const expected = await Promise.all(
        places.map(async ({ solution, step }) => {
          const [yes, no] = await model.score(
            [positiveIds, negativeIds].map((word) => judged(verdicts, solution, step, word)),
          );
          return 1 / (1 + Math.exp((no?.logprobs.at(-1) as number) - (yes?.logprobs.at(-1) as number)));
        }),
      );
      expect(scoresOf(json).flat()).toEqual(expected);
      const alone = await post(`${url}/score`, solutions[1]);
      expect(scoresOf(alone.json)).toEqual([scoresOf(json)[1]]);
    },
  );
});

it('answers a solution with an empty step with its error, and scores the others', async () => {
  await withServer(
    async ({ decoder }) => ({ verdict: verdictScorer(decoder, { tokenizer }) }),
    async ({ url }) => {
      const [whole] = solutions;
      const { status, json } = await post(`${url}/score`, {
        solutions: [{ problem: '1;+1', steps: ['1+1=2', ''] }, whole],
      });
      expect(status).toBe(200);
      expect(json).toMatchObject({
        data: [
          {
            index: 0,
            error: 'solutions[0].steps[1]: expected a text that says something, found ""',
            scores: null,
          },
          { index: 1, scores: [expect.any(Number), expect.any(Number)] },
        ],
      });
    },
  );
});

it('says of a judge by calculations which steps it computed; the problem may be called question', async () => {
  const likelihood = { of: 'calculations', constant: 1, verdict: 0, least: 3, before: 0 } as const;
  await withServer(
    async ({ decoder }) => ({ verdict: verdictScorer(decoder, { tokenizer, likelihood }) }),
    async ({ url }) => {
      const { status, json } = await post(`${url}/score`, { question: '1;+1', steps: ['1+1=2', '1+1'] });
      expect([status, json]).toMatchObject([200, { data: [{ reasons: ['1+1=2', null] }] }]);
    },
  );
});

it("says what the judge's run found wrong with it", async () => {
  const warnings = ['on 40 held-out steps AUC 52.0 is not told apart from chance'];
  await withServer(
    async ({ decoder }) => ({ verdict: { ...verdictScorer(decoder, { tokenizer }), warnings } }),
    async ({ url }) => {
      const { json } = await post(`${url}/score`, { problem: '1;+1', steps: ['1+1=2'] });
      expect(json).toMatchObject({ model: 'verdict', warnings });
    },
  );
});

it('warns of steps that are unlike all that the judge learned from, solution by solution', async () => {
  await withServer(
    async ({ decoder }) => ({
      verdict: tellingUnlike(verdictScorer(decoder, { tokenizer }), unlike),
    }),
    async ({ url }) => {
      const steps = [['1+1=2'], ['1+1=2', '1 plus 1 is 2'], ['3+4=7']];
      const { json } = await post(`${url}/score`, {
        solutions: steps.map((each) => ({ problem: '1;+1', steps: each })),
      });
      const sentence = expect.stringMatching(/^step 2 is written unlike the steps .* such as "1\+1=2": from/);
      expect(warningsOf(json)).toEqual([undefined, [sentence], undefined]);
      const said = (json as unknown as { data: { verdicts: string[] }[] }).data.map(
        ({ verdicts }) => verdicts,
      );
      expect(said.map((of) => of.map((word) => word === 'unsure'))).toEqual([
        [false],
        [false, true],
        [false],
      ]);
      const pairs = await post(`${url}/score`, { text_1: '1;+1', text_2: ['1+1=2', '1 plus 1 is 2'] });
      expect(warningsOf(pairs.json)).toEqual([undefined, [expect.stringMatching(/^step 1 is written/)]]);
    },
  );
});

it.each(['label', 'step'] as const)('gives the rewards of a network that compares by %s', async (mode) => {
  let reference: ((ids: readonly number[]) => Promise<number>) | undefined;
  await withServer(
    async ({ decoder }) => {
      const head = withHead(decoder.config, { kind: 'sequence', numLabels: 1, bias: false });
      const config = { ...lora, modulesToSave: ['score'], taskType: 'SEQ_CLS' };
      const adapter = await createAdapterOn(decoder, config, { seed: 5, model: head });
      const network = new Model(decoder, adapter);
      reference = async (ids) => (await network.classify([ids]))[0]?.logits[0]?.[0] as number;
      return { reward: rewardScorer(decoder, { tokenizer, mode, role: { adapter } }) };
    },
    async ({ url }) => {
      const { json } = await post(`${url}/score`, { model: 'reward', solutions });
      expect(json).toMatchObject({ scale: mode === 'label' ? 'log_odds' : 'reward' });
      const verdicts = verdictTokenizer({}, tokenizer);
      const { positiveIds, negativeIds } = verdicts.template;
      const found = scoresOf(json).flat();
      for (const [i, { solution, step }] of places.entries()) {
        const of = (word: readonly number[]) =>
          reference?.(judged(verdicts, solution, step, word)) as Promise<number>;
        const expected = mode === 'label' ? (await of(positiveIds)) - (await of(negativeIds)) : await of([]);
        expect(found[i]).toBeCloseTo(expected, 6);
      }
      expect(new Set(found).size).toBe(3);
    },
  );
});

describe('what cannot be scored', () => {
  it.each([
    [{}, 400, /^problem: expected a text, found nothing$/],
    [{ problem: 'a' }, 400, /^steps: expected a list of at least one text/],
    [{ problem: 'a', steps: [1] }, 400, /^steps: expected a list of texts/],
    [
      { problem: 'a', steps: ['b', ' \n'] },
      400,
      /^steps\[1\]: expected a text that says something, found " \\n"/,
    ],
    [{ problem: 'a', steps: ['b'], model: 'x' }, 404, /^there is no scorer "x"; known are verdict$/],
    [
      { problem: 'a', steps: new Array(5000).fill('b') },
      400,
      /^steps: expected a list of at most 1024, found 5000$/,
    ],
    [{ solutions: [] }, 400, /^solutions: expected a list of at least one solution/],
    [{ solutions: [{ problem: 'a' }] }, 400, /^solutions\[0\]\.steps: expected/],
    [{ problem: 'a', steps: ['b'], labels: [1] }, 400, /^labels: there is no such field/],
    [{ problem: 'a', step: ['b'] }, 400, /^step: there is no such field; did you mean steps\?/],
  ])('case %#', async (body, status, says) => {
    await withServer(
      async ({ decoder }) => ({ verdict: verdictScorer(decoder, { tokenizer }) }),
      async ({ url }) => {
        const answer = await post(`${url}/score`, body);
        expect([answer.status, answer.json.error.message]).toEqual([status, expect.stringMatching(says)]);
      },
    );
  });

  it('a step beyond what the model reads has no score', async () => {
    await withServer(
      async ({ decoder }) => ({ verdict: verdictScorer(decoder, { tokenizer, maxLength: 30 }) }),
      async ({ url }) => {
        const { json } = await post(`${url}/score`, { problem: '1;+1', steps: ['1+1=2', 'x'.repeat(40)] });
        expect(scoresOf(json)).toEqual([[expect.any(Number), null]]);
      },
    );
  });

  it('takes texts that the judge reads, however few tokens the served model does', async () => {
    const judge: Scorer = {
      ...{ name: 'judge', unit: 'step', scale: 'probability', threshold: 0.5, dispose: () => {} },
      score: async (all) => all.map(({ steps }) => ({ scores: steps.map(({ length }) => length / 1e6) })),
    };
    await withServer(
      async () => ({ judge }),
      async ({ url }) => {
        const [problem, step] = ['q', 'x'.repeat(100_000)];
        const { json } = await post(`${url}/score`, { problem, steps: [step, 'y'] });
        expect(scoresOf(json)).toEqual([[0.1, 1e-6]]);
        const messages = [
          { role: 'user', content: problem },
          { role: 'assistant', content: step },
        ];
        const pooled = await post(`${url}/pooling`, { messages });
        expect(pooled.json).toMatchObject({ data: [{ data: [[0.9, 0.1]] }] });
      },
    );
  });
});
