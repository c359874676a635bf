import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { LoadOptions } from '../../../src/data/load.js';
import { problemKey } from '../../../src/data/overlap.js';
import { StatisticsCounter } from '../../../src/data/statistics.js';
import { type StepRecord, verdictSamples } from '../../../src/records/record.js';
import { sharedPath } from '../../shared.js';
import { fileWith, load } from '../data-file.js';

const main = sharedPath('data/prm800k/prm800k.jsonl.gz');
const raw = sharedPath('data/prm800k/raw-format-sample.jsonl');

interface RawRow {
  question: { problem: string };
  label: {
    finish_reason: string;
    steps: {
      completions: { text: string; rating: number | null; flagged: boolean | null }[] | null;
      human_completion: { text: string } | null;
      chosen_completion: number | null;
    }[];
  };
  is_initial_screening_question: boolean;
}

/** The extraction as the method defines it, sample by sample, without records: prefix + c for every rated completion c. */
function reference(row: RawRow): string[] {
  const samples: string[] = [];
  const prefix: string[] = [];
  for (const { completions, human_completion, chosen_completion } of row.label.steps) {
    for (const { text, rating, flagged } of completions ?? []) {
      if (rating !== null && flagged !== true) samples.push(key([...prefix, text], rating >= 0 ? 1 : 0));
    }
    const next = chosen_completion === null ? human_completion?.text : completions?.[chosen_completion]?.text;
    if (next === undefined) break;
    prefix.push(next);
  }
  return samples.sort();
}

const key = (steps: readonly string[], label: number): string => JSON.stringify([steps, label]);

const samplesOf = (records: readonly StepRecord[]): string[] =>
  records
    .flatMap((record) => [...verdictSamples(record)].map(({ steps, label }) => key(steps, label)))
    .sort();

describe.skipIf(main === undefined || raw === undefined)('PRM800K (needs the shared data)', () => {
  it('gives every rating of the real file exactly once', async () => {
    const { records, report } = await load(main ?? '', { skip_finish_reasons: [] });
    expect(report.rows).toBe(1818);
    const labels = records.flatMap((record) => [...verdictSamples(record)].map((sample) => sample.label));
    expect(labels).toHaveLength(10_801);
    expect(labels.filter((label) => label === 0)).toHaveLength(1566);
    const counter = new StatisticsCounter();
    for (const { problem, steps } of records) {
      counter.add({ problem: problemKey(problem).hash, labels: steps.map(({ label }) => label) });
    }
    expect(counter.result()).toMatchObject({
      solutions: 1818,
      problems: 216,
      samples: 10_801,
      positive: 9235,
      negative: 1566,
    });
  });

  it('skips and counts the rows that labelers gave up', async () => {
    const { report } = await load(main ?? '');
    expect(report.records).toBe(1812);
    expect([...report.skipped]).toEqual([['finish_reason_give_up', 6]]);
  });

  it('labels neutral steps as configured and keeps dropped ones in the context', async () => {
    const count = async (neutral: 'positive' | 'negative' | 'drop') => {
      const { records, report } = await load(main ?? '', { neutral, skip_finish_reasons: [] });
      const labels = samplesOf(records);
      return { n: labels.length, negative: labels.filter((text) => text.endsWith(',0]')).length, report };
    };
    expect(await count('positive')).toMatchObject({ n: 10_801, negative: 1566 });
    expect(await count('negative')).toMatchObject({ n: 10_801, negative: 1566 + 639 });
    const dropped = await count('drop');
    expect(dropped).toMatchObject({ n: 10_801 - 639, negative: 1566 });
    expect([...dropped.report.unlabelled]).toEqual([['neutral', 639]]);
  });

  it('extracts alternatives, human steps and null steps of original rows as the method defines', async () => {
    const rows = rawRows(raw ?? '');
    const used = rows.filter(
      (row) => !row.is_initial_screening_question && row.label.finish_reason !== 'give_up',
    );
    expect(used).toHaveLength(4);
    const { records, report } = await load(raw ?? '');
    expect(samplesOf(records)).toEqual(used.flatMap(reference).sort());
    expect(Object.fromEntries(report.skipped)).toEqual({
      finish_reason_give_up: 1,
      initial_screening_question: 1,
    });
    // Second step of the first row: five wrong completions, then the labeler's own.
    const [trajectory, ...alternatives] = records.filter((record) =>
      record.problem.startsWith('Three pencils'),
    );
    expect(trajectory?.steps.map((step) => step.label)).toEqual([1, null, 1, 1, 1, 1]);
    expect(trajectory?.steps[1]?.text).toBe('We have $3p+e=1.24$ and $5p+e=1.82$.');
    expect(alternatives.map((record) => record.context_steps)).toEqual([1, 1, 1, 1, 1, 5, 5, 5, 5]);
    // A neutral step that counts as wrong makes the context of what comes after it wrong.
    const negative = await load(raw ?? '', { neutral: 'negative' });
    const wrong = negative.records.filter(({ context_wrong }) => context_wrong);
    expect(records.some(({ context_wrong }) => context_wrong)).toBe(false);
    expect(wrong.length).toBeGreaterThan(0);
    expect(wrong.every(({ context_steps = 0 }) => context_steps > 0)).toBe(true);
  });

  it('does the same for every row, including screening and given-up ones on request', async () => {
    const { records } = await load(raw ?? '', { initial_screening: 'keep', skip_finish_reasons: [] });
    expect(samplesOf(records)).toEqual(
      rawRows(raw ?? '')
        .flatMap(reference)
        .sort(),
    );
  });

  it('can read one phase, or only the chosen trajectories', async () => {
    const everything: LoadOptions = { initial_screening: 'keep', skip_finish_reasons: [] };
    expect((await load(raw ?? '', { ...everything, phase: 1 })).report.skipped).toEqual(
      new Map([['phase_2', 2]]),
    );
    expect((await load(raw ?? '', { ...everything, phase: 2 })).report.skipped).toEqual(
      new Map([['phase_1', 4]]),
    );
    const { records } = await load(raw ?? '', { ...everything, alternatives: false });
    expect(records).toHaveLength(6);
    expect(records.every((record) => record.context_steps === undefined)).toBe(true);
  });
});

describe('PRM800K options', () => {
  const row = (steps: object[], more: object = {}): string =>
    JSON.stringify({ question: { problem: 'P' }, label: { steps, finish_reason: 'solution' }, ...more });
  const step = (...completions: [string, number | null, boolean?][]): object => ({
    completions: completions.map(([text, rating, flagged = false]) => ({ text, rating, flagged })),
    human_completion: null,
    chosen_completion: completions.length > 0 ? 0 : null,
  });
  const labels = async (text: string, options: LoadOptions = {}) => {
    const { records, report } = await load(fileWith('rows.jsonl', text), options);
    return {
      labels: records[0]?.steps.map((entry) => entry.label),
      unlabelled: Object.fromEntries(report.unlabelled),
    };
  };

  it('flagged and unrated completions stay without a label, or are used', async () => {
    const text = row([step(['a', 1]), step(['b', 1, true]), step(['c', null]), step(['d', -1])]);
    expect(await labels(text)).toEqual({
      labels: [1, null, null, 0],
      unlabelled: { flagged: 1, null_rating: 1 },
    });
    expect((await labels(text, { flagged: 'keep' })).labels).toEqual([1, 1, null, 0]);
    expect((await labels(text, { null_rating: 'neutral' })).labels).toEqual([1, null, 1, 0]);
    expect((await labels(text, { null_rating: 'neutral', neutral: 'negative' })).labels).toEqual([
      1,
      null,
      0,
      0,
    ]);
  });

  it("the labeler's own step is context, or counts as right", async () => {
    const human = {
      completions: null,
      human_completion: { text: 'h', rating: null },
      chosen_completion: null,
    };
    const text = row([human, step(['a', 1])]);
    expect(await labels(text)).toEqual({ labels: [null, 1], unlabelled: { human_step: 1 } });
    expect((await labels(text, { human: 'positive' })).labels).toEqual([1, 1]);
  });

  it('a step without a chosen or written completion ends the trajectory; a row without steps is counted', async () => {
    expect((await labels(row([step(['a', 1]), step(), step(['never', 1])]))).labels).toEqual([1]);
    const rejected = { ...step(['b', -1], ['c', 1]), chosen_completion: null };
    const { records } = await load(
      fileWith('rows.jsonl', row([step(['a', 1]), rejected, step(['never', 1])])),
    );
    expect(records.map((record) => record.steps.map((entry) => entry.text))).toEqual([
      ['a', 'b'],
      ['a', 'c'],
    ]);
    const { report } = await load(fileWith('rows.jsonl', row([])));
    expect([...report.skipped]).toEqual([['no_steps', 1]]);
  });

  it('quality-control rows are skipped, or kept', async () => {
    const text = row([step(['a', 1])], { is_quality_control_question: true });
    expect((await labels(text)).labels).toBeUndefined();
    expect((await labels(text, { quality_control: 'keep' })).labels).toEqual([1]);
  });

  it('says what is wrong with a rating, a choice, or a step', async () => {
    await expect(labels(row([step(['a', 2])]))).rejects.toThrow(
      /line 1: the rating of completion 1 of step 1 of 'label.steps' is the number 2; expected -1, 0, 1 or null/,
    );
    await expect(labels(row([{ ...step(['a', 1]), chosen_completion: 3 }]))).rejects.toThrow(
      /'chosen_completion' of step 1 of 'label.steps' is the number 3; expected null or an index below 1/,
    );
    await expect(labels(row(['x' as unknown as object]))).rejects.toThrow(
      /step 1 of 'label.steps' is the text "x"; expected an object/,
    );
  });
});

function rawRows(path: string): RawRow[] {
  return readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as RawRow);
}
