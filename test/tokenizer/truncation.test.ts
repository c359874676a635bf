import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { type Segment, segmentTokenizer, type TokenizedSequence } from '../../src/tokenizer/segments.js';
import { holdToLength, LengthReport } from '../../src/tokenizer/truncation.js';

const tokenize = segmentTokenizer(byteTokenizer());

/** A prompt of 4 tokens, then labelled steps of the given lengths, each in two segments. */
function solution(lengths: readonly number[], train = true): TokenizedSequence {
  const segments: Segment[] = [{ text: 'prom', role: 'prompt', train: false }];
  for (const [step, length] of lengths.entries()) {
    segments.push({ text: 'a', role: 'step', step, label: 1, train: false });
    segments.push({ text: 'b'.repeat(length - 1), role: 'step', step, label: 1, train });
  }
  return tokenize(segments);
}

describe('holdToLength', () => {
  it('leaves a sequence that fits as it is', () => {
    const report = new LengthReport();
    const sequence = solution([3, 3]);
    expect(holdToLength(sequence, 10, 'cut', report)).toBe(sequence);
    expect(report).toMatchObject({ kept: 1, cut: 0, stepsCut: 0, tokensCut: 0 });
  });

  it('cuts after the last whole step and counts the labels that go', () => {
    const report = new LengthReport();
    const cut = holdToLength(solution([3, 3, 3]), 12, 'cut', report);
    expect(cut?.ids.length).toBe(10);
    expect(cut?.lossMask.length).toBe(10);
    expect(cut?.steps.map((step) => step.step)).toEqual([0, 1]);
    expect(cut?.spans.at(-1)?.end).toBe(10);
    expect(report).toMatchObject({ kept: 1, cut: 1, stepsCut: 1, tokensCut: 3 });
  });

  it('drops with a reason: longer than allowed, prompt too long, nothing left to learn', () => {
    const report = new LengthReport();
    expect(holdToLength(solution([3, 3]), 9, 'drop', report)).toBeUndefined();
    expect(holdToLength(solution([3, 3]), 3, 'cut', report)).toBeUndefined();
    expect(holdToLength(solution([3, 3]), 5, 'cut', report)).toBeUndefined();
    expect([...report.dropped]).toEqual([
      ['too_long', 1],
      ['prompt_too_long', 1],
      ['nothing_left_to_learn', 1],
    ]);
    expect(report.kept).toBe(0);
  });

  it('never exceeds the limit, never splits a step, and accounts for every sequence and token', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 2, max: 9 }), { minLength: 1, maxLength: 8 }),
        fc.integer({ min: 1, max: 60 }),
        fc.constantFrom('cut' as const, 'drop' as const),
        (lengths, maxLength, policy) => {
          const report = new LengthReport();
          const whole = solution(lengths);
          const held = holdToLength(whole, maxLength, policy, report);
          const dropped = [...report.dropped.values()].reduce((sum, n) => sum + n, 0);
          expect(report.kept + dropped).toBe(1);
          if (held === undefined) return;
          expect(held.ids.length).toBeLessThanOrEqual(maxLength);
          expect(held.ids.length + report.tokensCut).toBe(whole.ids.length);
          expect(held.steps.length + report.stepsCut).toBe(whole.steps.length);
          expect(whole.steps.some((step) => step.start < held.ids.length && held.ids.length < step.end)).toBe(
            false,
          );
          expect([...held.ids]).toEqual([...whole.ids.subarray(0, held.ids.length)]);
        },
      ),
    );
  });
});
