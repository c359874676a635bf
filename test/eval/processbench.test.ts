// Our count beside that of the benchmark's script, on its data.
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { evaluateVerdicts } from '../../src/eval/evaluate-verdicts.js';
import { PhiloxStream } from '../../src/random/philox.js';
import type { JudgedVerdict } from '../../src/scoring/verdict/judged.js';
import { load } from '../data/data-file.js';
import { sharedPath } from '../shared.js';

interface Row {
  readonly steps: readonly string[];
  readonly label: number;
}

const folder = sharedPath('data/processbench');

describe.skipIf(!folder)('ProcessBench (skipped where the shared data is absent)', () => {
  it('gives the result of the published script, from labelled steps alone', async () => {
    const paths = ['gsm8k', 'math'].map((name) => `${folder}/${name}.json.gz`);
    const records = (await Promise.all(paths.map((path) => load(path)))).flatMap((read) => read.records);
    const raw = paths.map((path): Row[] => JSON.parse(gunzipSync(readFileSync(path)).toString('utf8')));
    // A judge that is right in nine of ten steps and continues to guess after the first error.
    const probabilities = raw.flat().map(({ steps, label }, row) => {
      const draw = new PhiloxStream(5, 1, row);
      return steps.map((_, i) => {
        const correct = label === -1 || i < label ? 0.9 : i === label ? 0.1 : 0.5;
        return draw.uniform() < correct ? 0.5 + draw.uniform() / 2 : draw.uniform() / 2;
      });
    });
    const judged = records.flatMap(({ steps }, solution) =>
      steps.flatMap(({ label }, step): JudgedVerdict[] => {
        const probability = probabilities[solution]![step]!;
        const verdict = probability < 0.5 ? 0 : 1;
        if (label === null) return [];
        return [{ solution, step, label, verdict, probability, logPositive: 0, logNegative: 0 }];
      }),
    );
    const report = evaluateVerdicts(judged, {
      method: 'test',
      data: {},
      records,
      invalidAsWrong: true,
      positivePrior: 0.5,
      bootstrap: { resamples: 10 },
    });

    let first = 0;
    const expected = raw.map((rows) => {
      const hits = { error: [] as number[], correct: [] as number[] };
      for (const { label } of rows) {
        const prediction = probabilities[first++]!.findIndex((p) => p < 0.5);
        (label === -1 ? hits.correct : hits.error).push(prediction === label ? 1 : 0);
      }
      const mean = (list: readonly number[]) => list.reduce((sum, hit) => sum + hit, 0) / list.length;
      const [error, correct] = [mean(hits.error), mean(hits.correct)];
      return {
        n: rows.length,
        err_acc: error,
        cor_acc: correct,
        f1: (2 * error * correct) / (error + correct),
      };
    });
    expect(expected.map(({ n }) => n)).toEqual([400, 1000]);
    expect(expected[0]!.err_acc).toBeGreaterThan(0.3);
    expect(report.processbench?.subsets).toEqual({ gsm8k: expected[0], math: expected[1] });
    expect(report.processbench?.average_f1).toBeCloseTo((expected[0]!.f1 + expected[1]!.f1) / 2, 12);
  });
});
