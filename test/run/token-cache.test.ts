import { appendFileSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { verdictTemplate } from '../../src/data/verdict.js';
import { cacheDirectory } from '../../src/files/cache.js';
import { completeRunConfig } from '../../src/methods/config.js';
import { cachedTokenStore } from '../../src/run/token-cache.js';
import { readNotes, tokenizeData } from '../../src/run/tokenize.js';
import { configuredTokenizer } from '../../src/run/tokenizer.js';
import { capture } from '../cli/run-cli.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
let train: string;
let made: number;
beforeEach(() => {
  folder = temporaryDirectory();
  train = join(folder, 'train.jsonl');
  made = 0;
  writeFileSync(train, row('P') + row('Q'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  return () => vi.unstubAllEnvs();
});

const row = (problem: string) =>
  `${JSON.stringify({ prompt: problem, completions: ['a', 'b'], labels: [true, false] })}\n`;

/** Opens the store of a configuration and tells how many solutions it has. */
async function open(data: object = {}, prompt: object = {}): Promise<number> {
  const config = completeRunConfig({ method: 'sft', data: { train, ...data }, prompt });
  if (config.method !== 'sft') throw new Error('not reached');
  const template = verdictTemplate(config.prompt, await configuredTokenizer(config.model));
  const store = await cachedTokenStore(
    { data: config.data, model: config.model, template },
    async (directory) => {
      made++;
      await tokenizeData(
        { data: config.data, model: config.model, prompt: config.prompt, directory },
        () => {},
      );
      return true;
    },
  );
  store?.close();
  return store?.length ?? 0;
}

const entries = () => readdirSync(join(folder, 'cache/tokens'));

describe('the cache of tokens', () => {
  it('creates an entry once', async () => {
    expect([await open(), await open(), made]).toEqual([2, 2, 1]);
    expect(entries()).toHaveLength(1);
  });

  it('creates another entry if texts, reading, split or prompt change, but not for later limits', async () => {
    await open();
    await open({ max_length: 64, max_samples: 1, balance: 'downsample' });
    expect(made).toBe(1);
    await open({ seed: 1 });
    await open({ on_bad_row: 'skip' });
    await open({ max_steps: 1 });
    await open({}, { pos_word: 'yes', neg_word: 'no' });
    expect(made).toBe(5);
    // A text of the same length and time.
    const { mtime } = { mtime: new Date(1e12) };
    utimesSync(train, mtime, mtime);
    await open();
    expect(made).toBe(5);
    writeFileSync(train, row('P') + row('R'));
    utimesSync(train, mtime, mtime);
    await open();
    expect(made).toBe(6);
  });

  it('replaces a damaged entry', async () => {
    await open();
    const tokens = join(folder, 'cache/tokens', entries()[0]!, 'tokens.bin');
    const whole = readFileSync(tokens);
    appendFileSync(tokens, 'x');
    expect(await open()).toBe(2);
    expect(made).toBe(2);
    expect(readFileSync(tokens)).toEqual(whole);
    expect(entries()).toHaveLength(1);
  });

  it('keeps nothing after a failure or a stop', async () => {
    appendFileSync(train, '{"prompt": "P"}\n');
    await expect(open()).rejects.toThrow(`${train}, line 3: column 'completions' is missing`);
    expect(entries()).toEqual([]);
  });

  it('allows two processes to create the same entry', async () => {
    expect(await Promise.all([open(), open()])).toEqual([2, 2]);
    expect(entries()).toHaveLength(1);
  });

  it('deletes entries unused for a month', async () => {
    await open();
    const old = new Date(Date.now() - 31 * 24 * 3600 * 1000);
    utimesSync(join(folder, 'cache/tokens', entries()[0]!), old, old);
    await open({ seed: 1 });
    expect(entries()).toHaveLength(1);
    await open();
    expect(made).toBe(3);
  });

  it('is skipped with a message if it cannot be written', async () => {
    mkdirSync(join(folder, 'cache'));
    writeFileSync(join(folder, 'cache/tokens'), '');
    const { stderr } = await capture(async () => {
      expect(await open()).toBe(2);
      return 0;
    });
    expect(stderr).toMatch(
      /^the cache .* cannot be written \(.*\); tokenised data is not kept for the next run/,
    );
  });

  it('is in the usual directory for caches', () => {
    expect(cacheDirectory({ STEPTRAIN_CACHE: '/c' })).toBe('/c');
    expect(cacheDirectory({ XDG_CACHE_HOME: '/x' })).toBe('/x/steptrain');
    expect(cacheDirectory({})).toMatch(/\/\.cache\/steptrain$/);
  });
});

it('reports are read back equal from a store', () => {
  const report = {
    files: ['a'],
    rows: 3,
    records: 2,
    skipped: new Map([['invalid_json', 1]]),
    unlabelled: new Map(),
    unasked: new Map([['tools', 1]]),
    firstBadRow: 'a, line 3: x',
  };
  const written = JSON.parse(
    JSON.stringify({
      reports: [{ ...report, skipped: [['invalid_json', 1]], unlabelled: [], unasked: [['tools', 1]] }],
      leftOut: [['unfinished', 2]],
    }),
  );
  expect(readNotes(written)).toEqual({ reports: [report], leftOut: new Map([['unfinished', 2]]) });
});
