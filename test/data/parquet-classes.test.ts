// Labels as classes that `datasets` wrote (test/golden/parquet-classes): their names say which number is right.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
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
  ])('are refused by name where 0 is right: %s', async (name, sentence) => {
    await expect(recordsOf(name)).rejects.toThrow(sentence);
  });
});
