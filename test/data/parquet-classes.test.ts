// Labels as classes that `datasets` wrote (test/golden/parquet-classes): their names say which number is right.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadProblems } from '../../src/data/benchmarks/load.js';
import { loadRecords } from '../../src/data/load.js';
import type { StepRecord } from '../../src/records/record.js';
import { goldenDirectory } from '../models/golden.js';

const file = (name: string) => join(goldenDirectory('parquet-classes'), `${name}.parquet`);

async function recordsOf(name: string): Promise<StepRecord[]> {
  const records: StepRecord[] = [];
  for await (const record of loadRecords([file(name)]).records) records.push(record);
  return records;
}

describe('classes of labels in Parquet', () => {
  it('are read by their numbers where 1 is right', async () => {
    const labelsOf = (records: readonly StepRecord[]) => records[0]?.steps.map(({ label }) => label);
    expect(labelsOf(await recordsOf('steps-as-here'))).toEqual([1, 0]);
    expect(labelsOf(await recordsOf('record-as-here'))).toEqual([1, 0]);
    expect((await recordsOf('answer-as-here'))[0]?.outcome).toBe(1);
  });

  it.each([
    [
      'steps-contrary',
      'row 1: the label of completion 1 is the text "right"; expected true, false, 1, 0 or null',
    ],
    ['answer-contrary', `row 1: column 'label' is the text "right"; expected true, false, 1, 0 or null`],
    ['record-contrary', `row 1: 'label' of step 1 is the text "right"; expected true, false, 1, 0 or null`],
    ['record-contrary-old', `'label' of step 1 is the text "right"`],
    ['steps-three', 'the label of completion 1 is the text "correct"'],
    ['processbench-encoded-missing', 'the columns problem, steps, label are of no known layout'],
  ])('are refused by name where 0 is right, or a class is no mark: %s', async (name, sentence) => {
    await expect(recordsOf(name)).rejects.toThrow(sentence);
  });

  it('are the numbers that name them, in whatever order', async () => {
    const stepsOf = async (name: string) => (await recordsOf(name))[0]?.steps;
    expect((await stepsOf('steps-swapped'))?.map(({ label }) => label)).toEqual([1, 0]);
    expect(await stepsOf('steps-scores')).toMatchObject([{ label: 0, score: 0.25 }, { label: 1 }]);
    expect((await stepsOf('processbench-encoded'))?.map(({ label }) => label)).toEqual([1, 1]);
  });

  it.each([
    ['answer-of-four', 'C'],
    ['answer-of-two', 'yes'],
  ])('are answers by their names: %s', async (name, answer) => {
    const { problems } = await loadProblems(file(name));
    expect(problems.map((problem) => problem.answer)).toEqual([answer]);
  });
});
