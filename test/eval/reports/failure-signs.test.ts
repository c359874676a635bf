import { describe, expect, it } from 'vitest';
import { failureSigns } from '../../../src/eval/reports/failure-signs.js';

const fine = { n: 1000, acc_pos: 0.8, acc_neg: 0.75, f1_macro: 0.77, auc: 0.85 };
const losses = (...values: readonly number[]) => ({ metrics: fine, valueLosses: values });
const rising = Array.from({ length: 20 }, (_, i) => 0.1 + i * 0.05);

describe('signs of failure', () => {
  it('are empty for a healthy run', () => {
    expect(failureSigns({ metrics: fine })).toEqual([]);
    expect(failureSigns({ metrics: fine, sft: { f1_macro: 0.77 } })).toEqual([]);
    expect(failureSigns(losses(...rising.toReversed()))).toEqual([]);
  });

  it('include recalls more than 15 points apart, in either direction', () => {
    expect(failureSigns({ metrics: { ...fine, acc_pos: 0.6349, acc_neg: 0.8911 } })).toEqual([
      'Acc_pos 63.5 and Acc_neg 89.1 are more than 15 points apart: the verdicts lean to "wrong"; balance the classes, ' +
        'strengthen the constraint or move the threshold',
    ]);
    expect(failureSigns({ metrics: { ...fine, acc_pos: 0.9, acc_neg: 0.7 } })[0]).toContain(
      'lean to "right"',
    );
    expect(failureSigns({ metrics: { ...fine, acc_pos: 0.9, acc_neg: 0.76 } })).toEqual([]);
    // Of one class alone the other recall is no number.
    expect(failureSigns({ metrics: { n: 5, acc_pos: 0, acc_neg: 0.8, f1_macro: 0.44 } })).toEqual([]);
  });

  it('do not ask for what training does already', () => {
    const metrics = { ...fine, acc_pos: 0.9, acc_neg: 0.7, auc: 0.85 };
    expect(failureSigns({ metrics, balanced: true })).toEqual([
      'Acc_pos 90.0 and Acc_neg 70.0 are more than 15 points apart' +
        ': the verdicts lean to "right"; strengthen the constraint or move the threshold',
    ]);
  });

  it('include one answer to everything, instead of advice to balance', () => {
    const one = { n: 1000, acc_pos: 1, acc_neg: 0, f1_macro: 0.42 };
    expect(
      failureSigns({ metrics: { ...one, auc: 0.529 }, aucInterval: [0.48, 0.57], balanced: true }),
    ).toEqual([
      'it answers "right" to every step; AUC 52.9 (48.0 to 57.0) is not told apart from chance: it hardly tells right from wrong; take a ' +
        'stronger base, more labelled data or a longer training',
    ]);
    expect(failureSigns({ metrics: { ...one, auc: 0.529 } })[0]).toContain(
      'AUC 52.9 is not told apart from chance',
    );
    expect(failureSigns({ metrics: { ...one, auc: 0.8 } })).toEqual([
      'it answers "right" to every step; AUC 80.0 is above chance: its probabilities tell right from wrong, so move the ' +
        'threshold (eval_verdicts.threshold, of a reward model eval_scores.threshold)',
    ]);
    const wrong = { ...one, acc_pos: 0, acc_neg: 1, auc: 0.5 };
    expect(failureSigns({ metrics: wrong, unit: 'solutions' })[0]).toContain(
      'it answers "wrong" to every solution',
    );
  });

  it('include an AUC at, hardly above or below chance', () => {
    const of = (auc: number, aucInterval?: [number, number]) =>
      failureSigns({ metrics: { ...fine, acc_neg: 0.26, auc }, aucInterval })[0];
    expect(of(0.57, [0.55, 0.59])).toContain(
      'AUC 57.0 (55.0 to 59.0) is hardly above chance: it hardly tells',
    );
    expect(of(0.57, [0.49, 0.65])).toContain('is not told apart from chance');
    expect(of(0.3, [0.2, 0.4])).toContain(
      'is below chance: are the verdict words or the labels swapped, or did it learn for too few steps?',
    );
    expect(of(0.62, [0.55, 0.7])).toContain('lean to "right"; balance the classes');
  });

  it('do not ask for swapped words on a handful of steps', () => {
    // A bootstrap over few problems is too sure of itself: 20 steps have an AUC from 24 to 76 by chance alone.
    const of = (n: number, auc: number) =>
      failureSigns({ metrics: { ...fine, n, auc }, aucInterval: [0.1, 0.45] })[0];
    // 1.96 √(21 / 1200) = 25.9 points; the sentence says why, since the interval leaves 50 out.
    expect(of(20, 0.3)).toContain(
      'AUC 30.0 (10.0 to 45.0) may be chance: these are too few to tell (20 steps have 24.1 to 75.9 by chance alone; ' +
        'their interval is too narrow): judge more',
    );
    // 1.96 √(101 / 30000) = 11.4 points.
    expect(of(100, 0.42)).toContain(
      'is not told apart from chance (100 steps have 38.6 to 61.4 by chance alone; their interval is too narrow)',
    );
    expect(of(20, 0.2)).toContain('labels swapped, or did it learn');
    // So has a judge without a mistake whose interval is wide.
    const all = failureSigns({ metrics: { ...fine, acc_neg: 0.5, n: 6, auc: 1 }, aucInterval: [0.44, 1] });
    expect(all[0]).toContain('may be chance: these are too few to tell: judge more held-out steps');
    expect(of(400, 0.3)).toContain('labels swapped, or did it learn');
  });

  it('are those of the judge that is kept, and of the training of its words', () => {
    const metrics = { ...fine, auc: 0.9, f1_macro: 0.95 };
    const signs = failureSigns({ metrics, words: { f1_macro: 0.5 }, sft: { f1_macro: 0.6 } });
    expect(signs).toHaveLength(1);
    expect(signs[0]).toMatch(/^F1 macro 50\.0 is below the 60\.0 of the SFT model/);
  });

  it('recommend no pretrained base to one', () => {
    const metrics = { ...fine, acc_pos: 0.9, acc_neg: 0.7, auc: 0.85 };
    const of = (more: object) =>
      failureSigns({ metrics: { ...metrics, ...more }, evidence: 'calculations', pretrained: true })[0];
    expect(of({})).toMatch(
      /come out, or that have none; the verdict words may tell those after more rows or epochs$/,
    );
    expect(of({ auc: 0.5, acc_neg: 0 })).toMatch(/cannot know; give more rows or epochs, so that/);
  });

  it('advise what helps a judge that goes by calculations or by the base', () => {
    const of = (
      evidence: 'calculations' | 'likelihood',
      more: { auc: number; acc_neg: number; acc_pos?: number },
    ) => failureSigns({ metrics: { ...fine, acc_pos: 1, ...more }, evidence }).join();
    for (const evidence of ['calculations', 'likelihood'] as const) {
      const signs = [
        of(evidence, { auc: 0.5, acc_neg: 0 }),
        of(evidence, { auc: 0.9, acc_neg: 0.7 }),
        of(evidence, { auc: 0.9, acc_neg: 1, acc_pos: 0.7 }),
        of(evidence, { auc: 0.2, acc_neg: 0.5 }),
      ].join();
      expect(signs).not.toMatch(/constraint|balance|longer training|verdict words/);
    }
    expect(of('calculations', { auc: 0.9, acc_neg: 0.7 })).toContain(
      'lean to "right"; it misses steps whose calculations come out, or that have none; a pretrained base (model.base)',
    );
    expect(of('calculations', { auc: 0.5, acc_neg: 0 })).toContain(
      'few steps write out a calculation that does not come out',
    );
    expect(of('likelihood', { auc: 0.5, acc_neg: 0 })).toContain(
      'take one that writes such solutions itself',
    );
  });

  it('include an F1 below that of the supervised start', () => {
    expect(failureSigns({ metrics: fine, sft: { f1_macro: 0.8 } })).toEqual([
      'F1 macro 77.0 is below the 80.0 of the SFT model it started from: reinforcement learning made it worse; lower its ' +
        'learning rate or stop earlier',
    ]);
  });

  it('include a reward network that judges worse than the supervised start', () => {
    const [sign] = failureSigns({ metrics: fine, sft: { f1_macro: 0.7 }, network: { f1_macro: 0.65 } });
    expect(sign).toContain(
      'F1 macro 65.0 of the reward network as a judge is below the 70.0 of the SFT model',
    );
    expect(failureSigns({ metrics: fine, sft: { f1_macro: 0.7 }, network: { f1_macro: 0.75 } })).toEqual([]);
  });

  it('include a value loss that grows', () => {
    expect(failureSigns(losses(...rising))).toEqual([
      'the value loss diverges: 0.175 at the start of the run, 0.975 at its end; lower the learning rate or clip the values',
    ]);
    expect(failureSigns(losses(...rising.slice(0, 9)))).toEqual([]);
    expect(failureSigns(losses(0.1, Number.NaN))[0]).toContain('the value loss is not finite');
  });

  it('do not include single spikes of the value loss', () => {
    const spiky = rising.map((_, i) => (i === 18 ? 50 : 0.1));
    expect(failureSigns(losses(...spiky))).toEqual([]);
  });
});
