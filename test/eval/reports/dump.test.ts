import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { problemSteps, readVerdictDump, writeVerdictDump } from '../../../src/eval/reports/dump.js';
import type { StepRecord } from '../../../src/records/record.js';
import type { JudgedVerdict } from '../../../src/scoring/verdict/judged.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

const records: StepRecord[] = [
  {
    problem: 'What is 1 + 1?',
    steps: [
      { text: '1 + 1 = 2', label: 1, kind: 'normal' },
      { text: 'so\u2028it is\n3', label: 0, kind: 'normal' },
    ],
    provenance: { file: 'secret/place.jsonl', id: 'math-7' },
  },
  { problem: 'b', steps: [{ text: 'x', label: 1, kind: 'normal' }] },
];
const verdict = (solution: number, step: number, label: 0 | 1, probability: number): JudgedVerdict => ({
  solution,
  step,
  label,
  verdict: probability === 0.3 ? undefined : probability > 0.5 ? 1 : 0,
  probability,
  logPositive: -1,
  logNegative: -1,
});
const judged = [verdict(0, 0, 1, 0.1 + 0.7), verdict(0, 1, 0, 1e-300), verdict(1, 0, 1, 0.3)];

describe('verdicts.jsonl', () => {
  it('has one line per judged step, with its text, label and verdict', async () => {
    await writeVerdictDump(join(folder, 'verdicts.jsonl'), judged, records);
    const lines = readFileSync(join(folder, 'verdicts.jsonl'), 'utf8').split('\n');
    expect(lines).toHaveLength(4);
    expect(JSON.parse(lines[1]!)).toEqual({
      problem: 'What is 1 + 1?',
      id: 'math-7',
      solution: 0,
      step: 1,
      text: 'so\u2028it is\n3',
      label: 0,
      probability: 1e-300,
      verdict: 0,
    });
    expect(lines.join('')).not.toContain('secret');
  });

  it('is read back exactly, by its directory or its own path', async () => {
    const many = Array.from({ length: 1203 }, (_, i) =>
      verdict(0, i % 2, i % 2 === 0 ? 1 : 0, (i % 1000) / 1000),
    );
    await writeVerdictDump(join(folder, 'verdicts.jsonl'), [...judged, ...many], records);
    const rows = await readVerdictDump(folder);
    expect(rows).toEqual(await readVerdictDump(join(folder, 'verdicts.jsonl')));
    expect(rows.map(({ probability }) => probability)).toEqual(
      [...judged, ...many].map((of) => of.probability),
    );
    expect(rows[2]!.verdict).toBeNull();
    expect(problemSteps(rows)[2]).toEqual({ problem: 'b', label: 1, verdict: undefined, probability: 0.3 });
  });

  it('never contains NaN', async () => {
    const bad = [{ ...judged[0]!, probability: Number.NaN }];
    await expect(writeVerdictDump(join(folder, 'v.jsonl'), bad, records)).rejects.toThrow(
      'v.jsonl: probability: NaN is not a number that a JSON file can hold',
    );
  });

  it.each([
    ['{"problem": ', /verdicts\.jsonl, line 2: the row is not JSON/],
    [
      '{"problem":"p","solution":0,"step":0,"text":"","label":2,"probability":0.5,"verdict":1}',
      /line 2 is not a judged step: label: /,
    ],
    [
      '{"problem":"p","solution":0,"step":0,"text":"","label":1,"probability":1.5,"verdict":1}',
      /line 2 is not a judged step: probability: /,
    ],
    [
      '{"problem":"p","solution":0,"step":0,"text":"","label":1,"probability":1,"verdict":1,"x":1}',
      /line 2 is not a judged step: Unrecognized key/,
    ],
  ])('refuses a line that is not a judged step: %s', async (line, sentence) => {
    const good = '{"problem":"p","solution":0,"step":0,"text":"","label":1,"probability":0.5,"verdict":null}';
    writeFileSync(join(folder, 'verdicts.jsonl'), `${good}\n${line}\n`);
    await expect(readVerdictDump(folder)).rejects.toThrow(sentence);
  });

  it('is reported missing in one sentence that says what to do', async () => {
    await expect(readVerdictDump(join(folder, 'nowhere'))).rejects.toThrow(
      /^there is no run directory .*nowhere$/,
    );
    mkdirSync(join(folder, 'run'));
    await expect(readVerdictDump(join(folder, 'run'))).rejects.toThrow(
      /run holds no verdicts\.jsonl; judge its steps with: npx steptrain eval correction .*run --output DIR, then name DIR$/,
    );
    writeFileSync(join(folder, 'verdicts.jsonl'), '');
    await expect(readVerdictDump(folder)).rejects.toThrow(/holds no judged step$/);
  });
});
