import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { indices } from '../../../src/data/dataset.js';
import { PARTS } from '../../../src/data/split.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { SftRunConfig } from '../../../src/methods/sft/config.js';
import { configuredRecords, withheldRecords } from '../../../src/run/parts.js';
import { configuredTokenizer } from '../../../src/run/tokenizer.js';
import { learnedSizes, verdictSequence } from '../../../src/sequences/sequence.js';
import { type VerdictData, verdictData } from '../../../src/train/verdicts/data.js';
import { chatModel, TEMPLATE } from '../../generate/chat-model.js';
import { sharedPath } from '../../shared.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  return () => vi.unstubAllEnvs();
});

const never = new AbortController().signal;

function configOf(sections: object): SftRunConfig {
  return completeRunConfig({ method: 'sft', ...sections }) as SftRunConfig;
}

const arithmetic = { source: 'arithmetic', arithmetic: { samples: 300, error_rate: 0.2 } };

async function dataOf(sections: object): Promise<VerdictData> {
  const config = configOf(sections);
  const data = await verdictData(config, await configuredTokenizer(config.model), never);
  return data!;
}

/** The expected sequences, made in memory without store and cache. */
async function reference(sections: object) {
  const config = configOf(sections);
  const { parts } = await configuredRecords(config.data);
  const verdicts = verdictTokenizer(config.prompt, await configuredTokenizer(config.model));
  const labels = parts.train.flatMap(({ steps }) =>
    steps.flatMap(({ label }) => (label === null ? [] : [label])),
  );
  const shares = (of: readonly (1 | 0)[]) => {
    const right = of.filter((label) => label === 1).length / of.length;
    return { 1: right, 0: 1 - right };
  };
  const { class_weight } = config.sft;
  const weighed =
    class_weight === 'balanced' ||
    (class_weight === 'auto' && Math.min(...Object.values(shares(labels))) < 0.25);
  const placed = (record: (typeof parts.train)[number]) =>
    verdicts.solution(record, { maxLength: config.data.max_length });
  // Steps beyond the longest sequence are not learned, and weigh nothing.
  const share = shares(
    parts.train.flatMap((record) => placed(record).verdicts.flatMap(({ label }) => label ?? [])),
  );
  const weigh = (label: 1 | 0) => (weighed ? 1 / (2 * share[label]) : 1);
  const sequences = PARTS.map((part) =>
    parts[part].map((record, i) => verdictSequence(placed(record), verdicts, i, { weigh })),
  );
  const positive = labels.filter((label) => label === 1).length;
  return { parts, sequences, labels: { n: labels.length, positive, negative: labels.length - positive } };
}

const cases: readonly (readonly [string, object])[] = [
  ['as it is', { data: arithmetic }],
  ['with few of it, and long solutions cut', { data: { ...arithmetic, max_samples: 50, max_length: 34 } }],
  ['with the classes weighed', { data: arithmetic, sft: { class_weight: 'balanced' } }],
  [
    'with the classes weighed, and long solutions cut',
    { data: { ...arithmetic, max_length: 34 }, sft: { class_weight: 'balanced' } },
  ],
  ['with the commoner class made rarer', { data: { ...arithmetic, balance: 'downsample' } }],
  ['with the rarer class repeated', { data: { ...arithmetic, balance: 'upsample', max_steps: 3 } }],
  ['split by sample', { data: { ...arithmetic, split_unit: 'sample' } }],
];

describe('the data of verdict training', () => {
  it('knows which held-out steps stand in the training part', async () => {
    const { parts } = await configuredRecords(configOf({ data: arithmetic }).data);
    const data = await dataOf({ data: arithmetic });
    const trained = new Set(parts.train.flatMap(({ steps }) => steps.map(({ text }) => text)));
    for (const part of ['validation', 'test'] as const) {
      const wanted = parts[part].map(({ steps }) => steps.map(({ text }) => trained.has(text)));
      const found = parts[part].map(({ steps }, solution) =>
        steps.map((_, step) => data.seen[part]({ solution, step })),
      );
      expect(found).toEqual(wanted);
      const count = wanted.flat().filter(Boolean).length;
      expect(count).toBeGreaterThan(0);
      expect(data.summary.seenSteps?.[part]).toBe(count);
    }
    data.close();
  });

  it.each(cases)('%s equals that of records tokenised in memory', async (_, sections) => {
    const expected = await reference(sections);
    for (let time = 0; time < 2; time++) {
      const data = await dataOf(sections);
      expect(data.labels).toEqual(expected.labels);
      for (const [p, part] of PARTS.entries()) {
        expect(data.sequences[part]).toHaveLength(expected.sequences[p]!.length);
        for (const [i, sequence] of [...data.sequences[part]].entries()) {
          const { ids, positions, branch, verdicts, solution, rowId, targets } = sequence;
          const wanted = expected.sequences[p]![i]!;
          expect({ ids, positions, branch, verdicts, rowId }).toEqual({
            ids: wanted.ids,
            positions: wanted.positions,
            branch: wanted.branch,
            verdicts: wanted.verdicts,
            rowId: wanted.rowId,
          });
          expect(solution).toEqual(wanted.solution);
          expect(targets.map(({ row, token }) => [row, token])).toEqual(
            wanted.targets.map(({ row, token }) => [row, token]),
          );
          targets.forEach(({ weight }, t) => {
            expect(weight).toBeCloseTo(wanted.targets[t]!.weight, 10);
          });
          expect(data.records[part].get(i).problem).toBe(expected.parts[part][i]!.problem);
          expect(data.records[part].get(i).steps.map(({ text }) => text)).toEqual(
            expected.parts[part][i]!.steps.map(({ text }) => text),
          );
        }
        expect(data.summary.parts[part].solutions).toBe(expected.sequences[p]!.length);
      }
      data.close();
    }
  });

  it('weighs alike the classes of what is learned, also where few steps have a reason', async () => {
    const data = await dataOf({
      data: { source: 'word_problems', word_problems: { samples: 120, error_rate: 0.3 }, rationales: 20 },
      prompt: { response_format: 'rationale_then_verdict', rationale_tokens: 250 },
      sft: { class_weight: 'balanced' },
    });
    const sequences = [...data.sequences.train];
    const learned = sequences.flatMap(({ solution }) =>
      solution.verdicts.flatMap(({ label, rationale }) => (rationale && label !== null ? [label] : [])),
    );
    const right = learned.filter((label) => label === 1).length;
    expect(learned.length).toBeLessThan(data.labels.n / 2);
    const weights = new Set(
      sequences.flatMap(({ targets }) => targets.map(({ weight }) => weight.toFixed(9))),
    );
    // Tokens of a reason have the weight of the class.
    for (const count of [right, learned.length - right])
      expect(weights).toContain((learned.length / (2 * count)).toFixed(9));
    data.close();
  });

  it.each<readonly [string, object]>([
    ...cases,
    [
      'with words of several tokens',
      { data: arithmetic, prompt: { pos_word: 'right', neg_word: 'so wrong' } },
    ],
    ['with labels left to few', { data: { ...arithmetic, labelled: 40 } }],
  ])('%s has sizes, from tables alone, that are those of its sequences', async (_, sections) => {
    const data = await dataOf(sections);
    expect(data.learnedSizes()).toEqual(learnedSizes(data.sequences.train));
    expect(data.learnedSizes()).toHaveLength(data.sequences.train.length);
    data.close();
  });

  it('counts the steps that do not fit because of the reason before the word', async () => {
    const sections = {
      data: {
        source: 'word_problems',
        word_problems: { samples: 60, levels: [1], error_rate: 0.4 },
        max_length: 110,
      },
      model: { base: 'word-problems', tokenizer: 'base' },
      prompt: {
        template: 'compact',
        pos_word: '1',
        neg_word: '0',
        response_format: 'rationale_then_verdict',
        rationale_tokens: 60,
      },
    };
    const config = configOf(sections);
    const { parts } = await configuredRecords(config.data);
    const data = await dataOf(sections);
    for (const part of PARTS) {
      const placed = [...data.sequences[part]].reduce((sum, { verdicts }) => sum + verdicts.length, 0);
      const labelled = parts[part].flatMap(({ steps }) => steps.filter(({ label }) => label !== null)).length;
      expect(data.summary.parts[part].lengths?.stepsCut).toBe(labelled - placed);
      expect(placed).toBeGreaterThan(0);
      expect(placed).toBeLessThan(labelled);
    }
    data.close();
  });

  it('keeps the labels and reasons that `data rationales` leaves in its file', async () => {
    const config = configOf({
      data: {
        source: 'word_problems',
        word_problems: { samples: 80, levels: [1], error_rate: 0.4 },
        max_length: 200,
        labelled: 40,
        label_noise: 0.2,
        rationales: 25,
      },
      model: { base: 'word-problems', tokenizer: 'base' },
      prompt: { template: 'compact', response_format: 'rationale_then_verdict', rationale_tokens: 60 },
    });
    const { parts } = await configuredRecords(config.data);
    const withheld = withheldRecords(parts.train, config.data);
    const reasons = withheld.map(({ steps }) => steps.map(({ rationale }) => rationale !== undefined));
    expect(reasons.filter((steps) => steps.some(Boolean))).toHaveLength(25);
    expect(withheld.filter(({ steps }) => steps.some(({ label }) => label !== null))).toHaveLength(40);
    const data = await dataOf(config);
    const learned = indices(data.sequences.train).map((i) => data.sequences.train.get(i).solution.verdicts);
    withheld.forEach(({ steps }, i) => {
      const wanted = steps.flatMap(({ label }, step) =>
        label === null ? [] : [{ step, label, hasReason: reasons[i]?.[step] === true }],
      );
      const found = learned[i]?.map(({ step, label, rationale }) => ({
        step,
        label,
        hasReason: rationale !== undefined,
      }));
      expect(found).toEqual(wanted);
    });
    data.close();
  });

  it('can limit the held-out parts', async () => {
    const data = await dataOf({ data: arithmetic, eval: { max_samples: 5 } });
    expect([data.sequences.validation.length, data.records.test.length]).toEqual([5, 5]);
    expect(data.summary.parts.test.solutions).toBe(5);
    data.close();
  });

  it('is refused if nothing is left to train on', async () => {
    writeFileSync(join(folder, 'empty.jsonl'), '');
    await expect(dataOf({ data: { train: join(folder, 'empty.jsonl') } })).rejects.toThrow(
      'empty.jsonl gives no solution for training',
    );
  });

  const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
  const qwen = sharedPath('data/tokenizers/qwen2_5');
  it.skipIf(!prm800k || !qwen)('of PRM800K with the Qwen2.5 tokenizer is the same too', async () => {
    const init = { hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1 };
    const sections = {
      model: { base: { init }, tokenizer: qwen },
      data: { train: prm800k, max_length: 400 },
    };
    const expected = await reference(sections);
    const data = await dataOf(sections);
    const wanted = expected.sequences[0]!;
    const others = indices(data.sequences.train).filter((i) => {
      const { ids, solution } = data.sequences.train.get(i);
      return !isDeepStrictEqual({ ids, solution }, { ids: wanted[i]!.ids, solution: wanted[i]!.solution });
    });
    expect(others).toEqual([]);
    expect(data.summary.parts.train.lengths!.stepsCut).toBe(
      wanted.reduce((sum, { solution }) => sum + solution.tooLong, 0),
    );
    data.close();
  });
});

// Only the compiled program has a worker and a process of its own.
const compiled = fileURLToPath(new URL('../../../dist/train/verdicts/data.js', import.meta.url));
describe.skipIf(!existsSync(compiled))('in the compiled program (needs dist/: npm run build)', () => {
  /** Runs `measure` in a process of its own, with a function that opens the data of `train`. */
  function inProcess<T>(train: string, measure: string): T {
    const from = (name: string) => JSON.stringify(compiled.replace('train/verdicts/data', name));
    const source = `
      import { completeRunConfig } from ${from('methods/config')};
      import { configuredTokenizer } from ${from('run/tokenizer')};
      import { verdictData } from ${from('train/verdicts/data')};
      const config = completeRunConfig({ method: 'sft', data: { train: ${JSON.stringify(train)} } });
      const tokenizer = await configuredTokenizer(config.model);
      const open = (signal = new AbortController().signal) => verdictData(config, tokenizer, signal);
      const measure = ${measure};
      console.log(JSON.stringify(await measure(open)));`;
    const args = ['--expose-gc', '--input-type=module', '-e', source];
    const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    return JSON.parse(stdout) as T;
  }

  const rows = (count: number, steps = 4): string => {
    const path = join(folder, `${count}.jsonl`);
    const texts = Array.from({ length: count }, (_, i) =>
      JSON.stringify({
        prompt: `Problem ${i} ${'x'.repeat(300)}`,
        completions: Array.from({ length: steps }, (__, j) => `step ${j} of ${i} ${'y'.repeat(100)}`),
        labels: Array.from({ length: steps }, (__, j) => (i + j) % 3 > 0),
      }),
    );
    writeFileSync(path, `${texts.join('\n')}\n`);
    return path;
  };

  it('a failure in the worker is reported in one sentence', () => {
    const path = join(folder, 'bad.jsonl');
    writeFileSync(path, '{"prompt": "P", "completions": ["a"], "labels": [1]}\n{"prompt": "P"}\n');
    const failed = inProcess(path, `(open) => open().catch(({ name, message }) => [name, message])`);
    expect(failed).toEqual([
      'DataError',
      expect.stringMatching(/bad\.jsonl, line 2: column 'completions' is missing; expected a list/),
    ]);
  });

  it('a signal ends the worker and leaves no files', () => {
    const stopped = inProcess(
      rows(20_000),
      `async (open) => {
        const stop = new AbortController();
        setTimeout(() => stop.abort(), 300);
        return (await open(stop.signal)) === undefined;
      }`,
    );
    expect(stopped).toBe(true);
    expect(readdirSync(join(folder, 'cache/tokens'))).toEqual([]);
  });

  it('a signal from before the start of the worker also stops it', () => {
    const stopped = inProcess(rows(50), 'async (open) => (await open(AbortSignal.abort())) === undefined');
    expect(stopped).toBe(true);
    expect(readdirSync(join(folder, 'cache/tokens'))).toEqual([]);
  });

  it('memory does not grow with the texts: only an index is kept, less than 8 kB per row', () => {
    interface Measured {
      readonly tokens: number;
      readonly held: number;
    }
    const measure = `async (open) => {
      const data = await open();
      let tokens = 0;
      for (const { ids } of data.sequences.train) tokens += ids.length;
      for (const { problem } of data.records.train) tokens += problem.length;
      // Twice: the second collection frees what the first has finalised.
      gc();
      await new Promise((resolve) => setTimeout(resolve, 100));
      gc();
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      data.close();
      return { tokens, held: heapUsed + arrayBuffers };
    }`;
    // Both more than the tokens that are kept in memory.
    const few = inProcess<Measured>(rows(6_000), measure);
    const many = inProcess<Measured>(rows(12_000), measure);
    expect(many.tokens / few.tokens).toBeGreaterThan(1.9);
    // A solution of 780 tokens takes about 25 kB as a sequence in memory; the additional ones would take 150 MB.
    expect((many.held - few.held) / 6_000).toBeLessThan(8_000);
  });
});

it('warns where verdicts would be learned inside reasoning that the chat template opens', async () => {
  const warned = async (template: string, prompt: object = {}) => {
    const base = await chatModel(template);
    const { summary } = await dataOf({ data: arithmetic, model: { base }, prompt });
    return summary.warnings.filter((warning) => warning.includes('<think>'));
  };
  const opens = TEMPLATE.replace("assistant\\n'", "assistant\\n<think>\\n'");
  expect(await warned(opens)).toEqual([
    'the chat template opens <think> before what is learned: without </think> the model learns to answer inside its reasoning; ' +
      'set prompt.template to a text that opens none',
  ]);
  expect(await warned(TEMPLATE)).toEqual([]);
});
