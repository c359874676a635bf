import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as later } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { verdictTokenizer } from '../../src/data/verdict.js';
import { parseExact } from '../../src/files/exact-json.js';
import { completeRunConfig } from '../../src/methods/config.js';
import type { StepRecord } from '../../src/records/record.js';
import { encodeRecord } from '../../src/run/encode.js';
import { type EncoderJob, Encoders, type EncoderThread } from '../../src/run/encoders.js';
import { receivedError } from '../../src/run/sent-error.js';
import { tokenizeData } from '../../src/run/tokenize.js';
import { configuredTokenizer } from '../../src/run/tokenizer.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** More than one thread encodes alone. */
const ROWS = 3000;
let folder: string;
let train: string;
let closed: number;
let batches: number;
beforeEach(() => {
  folder = temporaryDirectory();
  train = join(folder, 'train.jsonl');
  [closed, batches] = [0, 0];
  writeFileSync(train, Array.from({ length: ROWS }, (_, i) => row(i)).join(''));
});

const row = (i: number) =>
  `${JSON.stringify({ prompt: `${i} + 1`, completions: [`${i} + 1 = ${i + 1}`, 'end'], labels: [true, i % 2 === 0] })}\n`;

/** Threads that answer after a while, later batches at times before earlier ones of another thread. */
const threads =
  (count: number, fails?: string) =>
  (job: EncoderJob): EncoderThread[] =>
    Array.from({ length: count }, (_, of) => ({
      async encode(texts) {
        batches++;
        await later(of === 0 ? 20 : 1);
        if (fails !== undefined && texts.some((text) => text.includes(fails)))
          throw receivedError({
            kind: 'row',
            what: `no tokens for ${fails}`,
            position: { file: train, line: 1 },
            hint: '',
          });
        const verdicts = verdictTokenizer(job.prompt, await configuredTokenizer(job.model));
        return texts.map((text) => encodeRecord(verdicts, parseExact(text) as StepRecord, job));
      },
      async close() {
        closed++;
      },
    }));

async function store(name: string, of: (job: EncoderJob) => EncoderThread[]): Promise<Buffer[]> {
  const { data, model, prompt } = completeRunConfig({
    method: 'sft',
    data: { train },
  }) as never as Parameters<typeof tokenizeData>[0];
  const directory = join(folder, name);
  mkdirSync(directory);
  await tokenizeData({ data, model, prompt, directory }, () => {}, of);
  return readdirSync(directory).map((file) => readFileSync(join(directory, file)));
}

describe('tokenising with other threads', () => {
  it('writes the same bytes as alone', async () => {
    const alone = await store('alone', threads(0));
    expect(batches).toBe(0);
    expect(await store('three', threads(3))).toEqual(alone);
    expect(batches).toBeGreaterThan(3);
    expect(closed).toBe(3);
  });

  it('has threads from the beginning for large files, and closes them where it cannot begin', async () => {
    const remarks = Array.from({ length: 50 }, (_, i) => row(i).replace('end', 'e'.repeat(100_000)));
    writeFileSync(train, remarks.join(''));
    const alone = await store('alone', threads(0));
    expect(await store('two', threads(2))).toEqual(alone);
    expect([batches, closed]).toEqual([1, 2]);
    const { data, prompt } = completeRunConfig({ method: 'sft', data: { train } }) as never as Parameters<
      typeof tokenizeData
    >[0];
    const model = { base: 'x', tokenizer: join(folder, 'none') } as never;
    await expect(
      tokenizeData({ data, model, prompt, directory: folder }, () => {}, threads(2)),
    ).rejects.toThrow(/no tokenizer\.json|no such directory/);
    expect(closed).toBe(4);
    const bytes = { base: 'x', tokenizer: 'bytes' } as never;
    const gone = join(folder, 'no', 'such');
    await expect(
      tokenizeData({ data, model: bytes, prompt, directory: gone }, () => {}, threads(2)),
    ).rejects.toThrow('ENOENT');
    expect(closed).toBe(6);
  });

  it('meets a row that a thread cannot encode before a later one that cannot be read', async () => {
    writeFileSync(train, '{"prompt": "P"}\n', { flag: 'a' });
    await expect(store('unread', threads(2))).rejects.toThrow(`line ${ROWS + 1}`);
    await expect(store('unencoded', threads(2, '2990 + 1'))).rejects.toThrow('no tokens for 2990 + 1');
    expect(closed).toBe(4);
  });
});

it('gives a batch to the thread that has the fewest, and encodes it where all have two', async () => {
  const asked: string[] = [];
  const waits = (name: string): EncoderThread => ({
    encode: () => {
      asked.push(name);
      return new Promise(() => {});
    },
    close: async () => {},
  });
  const record = { problem: 'p', steps: [] } as never as StepRecord;
  const encoders = new Encoders([waits('a'), waits('b')], () => {
    asked.push('here');
    return {} as never;
  });
  for (let i = 0; i < 5; i++) void encoders.encode([{ record, text: '' }]);
  expect(asked).toEqual(['a', 'b', 'a', 'b', 'here']);
});
