import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { openLogFile, readLog, readMetric } from '../../src/run/log-file.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let path: string;
beforeEach(() => {
  path = join(temporaryDirectory(), 'metrics.jsonl');
});

describe('a log of JSON lines', () => {
  it('has one object per line, readable at once', () => {
    const log = openLogFile(path);
    log.append({ step: 1, note: 'two\nlines' });
    log.append({ step: 2, loss: 1e-300 });
    const lines = readFileSync(path, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines).toEqual([
      { step: 1, note: 'two\nlines' },
      { step: 2, loss: 1e-300 },
    ]);
    expect(log.length).toBe(readFileSync(path).length);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])('refuses %d by its key and writes nothing', (bad) => {
    const log = openLogFile(path);
    expect(() => log.append({ step: 3, stats: { grad_norm: bad } })).toThrow(
      `${path}: stats: grad_norm: ${bad} is not a number that a JSON file can hold`,
    );
    expect(readFileSync(path, 'utf8')).toBe('');
  });

  it('continues after the last whole line', () => {
    for (const rest of ['', '{"torn": ', 'x'.repeat(200_000)]) {
      writeFileSync(path, `{"step":1}\n${rest}`);
      const log = openLogFile(path);
      log.append({ step: 2 });
      log.close();
      expect(readFileSync(path, 'utf8')).toBe('{"step":1}\n{"step":2}\n');
    }
    writeFileSync(path, 'no line at all');
    openLogFile(path).close();
    expect(readFileSync(path, 'utf8')).toBe('');
  });

  it('grows again after a truncation', () => {
    const log = openLogFile(path);
    log.append({ step: 1 });
    const { length } = log;
    log.append({ step: 2 });
    log.cutTo(length);
    log.cutTo(length + 1000);
    log.append({ step: 3 });
    expect(readFileSync(path, 'utf8')).toBe('{"step":1}\n{"step":3}\n');
  });

  it.skipIf(!existsSync('/dev/full'))('says so in one sentence when the disk is full', () => {
    const log = openLogFile('/dev/full');
    expect(() => log.append({ step: 1 })).toThrow(/^cannot write \/dev\/full: no space left on the disk/);
    expect(log.length).toBe(0);
  });
});

describe('a log read back', () => {
  it('returns its objects, without a last line that was cut off', () => {
    const log = openLogFile(path);
    log.append({ step: 1, value_loss: 0.5 });
    log.append({ step: 2, loss: 3 });
    log.append({ step: 3, value_loss: 0.25 });
    log.close();
    writeFileSync(path, '{"step": 4, "value_lo', { flag: 'a' });
    expect(readLog(path)).toHaveLength(3);
    expect(readMetric(path, 'value_loss')).toEqual([0.5, 0.25]);
    expect(readMetric(path, 'reward')).toEqual([]);
  });

  it.each([
    ['{"step":\n', /metrics\.jsonl, line 2 is not JSON: /],
    ['[1]\n', /metrics\.jsonl, line 2 is not a JSON object$/],
  ])('refuses the line %j and names its place', (line, sentence) => {
    writeFileSync(path, `{"step":1}\n${line}`);
    expect(() => readLog(path)).toThrow(sentence);
  });

  it('is refused if it is missing', () => {
    expect(() => readLog(`${path}x`)).toThrow(/^cannot read .*metrics\.jsonlx: no such file or directory$/);
  });
});
