import { appendFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { solutionRank } from '../../src/data/limit.js';
import { problemKey, stepKey } from '../../src/data/overlap.js';
import { type StoredSolution, TokenStore, TokenStoreWriter } from '../../src/data/token-store.js';
import { exactText, parseExact } from '../../src/files/exact-json.js';
import type { StepRecord } from '../../src/records/record.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let directory: string;
beforeEach(() => {
  directory = temporaryDirectory();
});

function solution(
  problem: string,
  labels: readonly (1 | 0 | null)[],
  ids: readonly number[],
): StoredSolution {
  const record: StepRecord = {
    problem,
    steps: labels.map((label, i) => ({ text: `step ${i} é`, label, kind: 'normal' })),
    ...(labels.length > 2 ? { context_steps: 1 } : {}),
  };
  return {
    part: (['train', 'validation', 'test'] as const)[labels.length % 3]!,
    record,
    text: exactText(record),
    stepKeys: record.steps.map(stepKey),
    key: problemKey(problem),
    ids: Int32Array.from(ids),
    promptEnd: Math.min(1, ids.length),
    stepEnds: labels.slice(0, labels.findLastIndex((label) => label !== null) + 1).map((_, i) => i + 2),
    rank: solutionRank(record, 3),
  };
}

async function write(solutions: readonly StoredSolution[], notes: unknown = null): Promise<void> {
  const writer = await TokenStoreWriter.create(directory);
  for (const one of solutions) await writer.add(one);
  await writer.finish(notes);
}

const ten = Array.from({ length: 10 }, (_, i) =>
  solution(
    `Problem ${i % 4} has more than five words in it`,
    [1, 0, null].slice(0, 1 + (i % 3)) as (1 | 0 | null)[],
    [i, 2 ** 31 - 1, 7],
  ),
);

describe('a token store', () => {
  it('returns what was written, in any order of access', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.tuple(
            fc.string(),
            fc.array(fc.constantFrom<1 | 0 | null>(1, 0, null), { minLength: 1, maxLength: 5 }),
            fc.array(fc.nat(2 ** 31 - 1)),
          ),
        ),
        async (rows) => {
          rmSync(directory, { recursive: true });
          directory = temporaryDirectory();
          const solutions = rows.map(([problem, labels, ids]) => solution(problem, labels, ids));
          await write(solutions, { rows: rows.length });
          const store = (await TokenStore.open(directory))!;
          expect(store.notes).toEqual({ rows: rows.length });
          expect(store.length).toBe(rows.length);
          for (const [i, one] of [...solutions.entries()].reverse()) {
            expect(store.part(i)).toBe(one.part);
            expect(store.key(i)).toEqual(one.key);
            expect(store.record(i)).toEqual(one.record);
            expect(store.labels(i)).toEqual(one.record.steps.map(({ label }) => label));
            expect(store.stepKeys(i)).toEqual(one.record.steps.map(stepKey));
            expect(store.contextSteps(i)).toBe(one.record.context_steps ?? 0);
            expect(store.stepEnds(i)).toEqual(one.stepEnds);
            expect(store.promptEnd(i)).toBe(one.promptEnd);
            expect(store.rank(i)).toBe(solutionRank(one.record, 3));
            expect(store.size(i)).toBe(one.ids.length);
            expect(store.ids(i)).toEqual(one.ids);
          }
          store.close();
        },
      ),
      { numRuns: 30 },
    );
  });

  it('is not opened if any file was changed or is missing', async () => {
    const names = [
      'tokens.bin',
      'solutions.bin',
      'steps.bin',
      'sketches.bin',
      'records.jsonl',
      'contents.json',
    ];
    await write(ten);
    const opened = await TokenStore.open(directory);
    expect(opened?.length).toBe(10);
    opened?.close();
    for (const name of names) {
      const path = join(directory, name);
      const whole = readFileSync(path);
      const flipped = Buffer.from(whole);
      flipped[flipped.length >> 1]! ^= 1;
      const damages = [
        () => truncateSync(path, whole.length - 1),
        () => rmSync(path),
        ...(name === 'contents.json'
          ? []
          : [() => appendFileSync(path, 'x'), () => writeFileSync(path, flipped)]),
      ];
      for (const damage of damages) {
        damage();
        expect(await TokenStore.open(directory), `${name}: ${damage}`).toBeUndefined();
        writeFileSync(path, whole);
      }
    }
    expect(await TokenStore.open(join(directory, 'nothing'))).toBeUndefined();
  });
});

it('keeps digits and kind of the numbers in calls', async () => {
  const call = parseExact('{"a":2.0,"b":12345678901234567890}');
  const { record, ...rest } = ten[0]!;
  const step = { ...record.steps[0]!, message: { tool_calls: [call] } };
  const own = { ...record, steps: [step] };
  await write([{ ...rest, record: own, text: exactText(own) }]);
  const store = await TokenStore.open(directory);
  expect(exactText(store?.record(0).steps[0]?.message)).toBe(`{"tool_calls":[${exactText(call)}]}`);
  store?.close();
});
