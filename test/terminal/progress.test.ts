import { afterEach, describe, expect, it } from 'vitest';
import { createProgress, formatDuration, formatMetric } from '../../src/terminal/progress.js';

function screen(isTTY: boolean, columns = 80) {
  const written: string[] = [];
  return { isTTY, columns, written, write: (text: string) => written.push(text) };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal control is what is looked for
const CONTROL = /\x1b\[[0-9;]*[A-Za-z]/g;

afterEach(() => {
  delete process.env.NO_COLOR;
});

describe('progress in a pipe', () => {
  it('is an occasional plain line with rate and remaining time', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 300, stream, now: () => time });
    for (let step = 1; step <= 300; step++) {
      time += 100;
      progress.update(step, { loss: 2 / step, tokens: 12_345 });
    }
    progress.finish();
    const lines = stream.written.join('').trimEnd().split('\n');
    expect(lines).toEqual([
      'step 1/300  loss 2  tokens 12.3k  10 steps/s',
      'step 101/300  loss 0.0198  tokens 12.3k  10 steps/s  20s left',
      'step 201/300  loss 0.00995  tokens 12.3k  10 steps/s  10s left',
      'step 300/300  loss 0.006667  tokens 12.3k  10 steps/s  30s in all',
    ]);
  });

  it('tells the most time that is left after a long first step', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 10, stream, unit: 'reward step', now: () => time });
    progress.update(0);
    time = 140_000;
    progress.update(1, { loss: 0.6 });
    time = 240_000;
    progress.update(2, { loss: 0.5 });
    expect(stream.written).toEqual([
      'reward step 0/10\n',
      'reward step 1/10  loss 0.6  140 s/step  at most 21m00s left\n',
      'reward step 2/10  loss 0.5  100 s/step  13m20s left\n',
    ]);
  });

  it('tells how far a long step is', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 4, stream, unit: 'corrections step', now: () => time });
    for (let done = 0; done <= 30; done++) {
      progress.part({ unit: 'candidates: sample', done, total: 30, tokens: 20 * done });
      time += 1000;
    }
    progress.update(1);
    expect(stream.written.join('').trimEnd().split('\n')).toEqual([
      'corrections step 0/4  candidates: sample 2/30  tokens/s 20  28s left of these',
      'corrections step 0/4  candidates: sample 12/30  tokens/s 20  18s left of these',
      'corrections step 0/4  candidates: sample 22/30  tokens/s 20  8s left of these',
    ]);
  });

  it('tells the time that is left from the first samples on, where they serve several steps', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 40, stream, unit: 'ppo step', now: () => time });
    progress.note('ppo step 0: validation f1_macro 0.8');
    time = 5000;
    // 20 s of samples, then 4 steps of 1 s each that learn from them.
    const step = (done: number) => {
      if (done % 4 === 0)
        for (let i = 0; i <= 20; i++) {
          progress.part({ unit: 'rollout: answer', done: i, total: 20, serves: 4 });
          time += i < 20 ? 1000 : 0;
        }
      time += 1000;
      progress.update(done + 1);
    };
    for (let done = 0; done < 40; done++) step(done);
    const lines = stream.written.join('').trimEnd().split('\n').slice(1);
    expect(lines.slice(0, 4)).toEqual([
      'ppo step 0/40  rollout: answer 2/20  18s left of these, 3m00s of later ones',
      'ppo step 0/40  rollout: answer 12/20  8s left of these, 3m00s of later ones',
      'ppo step 2/40  6.0 s/step  3m48s left',
      'ppo step 4/40  rollout: answer 10/20  10s left of these',
    ]);
    // 24 s for 4 steps: what was left at the second was right.
    expect(time).toBe(5000 + 240_000);
    expect(lines.at(-1)).toMatch(/^ppo step 40\/40 {2}6\.\d s\/step {2}4m05s in all$/);
  });

  it('says nothing of later samples that take less than a second', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 41, stream, unit: 'ppo step', now: () => time });
    for (let done = 0; done <= 10; done++, time += 1000)
      progress.part({ unit: 'rollout: answer', done, total: 12, serves: 40 });
    // One step of 41 is left for a second rollout of some 12 s.
    expect(stream.written[0]).toBe('ppo step 0/41  rollout: answer 2/12  10s left of these\n');
  });

  it('leaves the steps before a resume out of its rate', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 200, start: 100, stream, now: () => time });
    time = 20_000;
    progress.update(110);
    time = 40_000;
    progress.update(120);
    expect(stream.written.join('')).toBe(
      'step 110/200  2.0 s/step  at most 3m00s left\nstep 120/200  2.0 s/step  2m40s left\n',
    );
  });

  it('leaves the first step out of its rate, and counts the last word of the unit', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({
      total: 5,
      unit: 'evaluation of sft: solution',
      stream,
      now: () => time,
    });
    time = 50_000;
    progress.update(1);
    time = 60_000;
    progress.update(3);
    expect(stream.written.join('')).toBe(
      'evaluation of sft: solution 1/5  50 s/solution  at most 3m20s left\nevaluation of sft: solution 3/5  5.0 s/solution  10s left\n',
    );
  });

  it('writes long steps without an exponent', () => {
    const stream = screen(false);
    let time = 0;
    const progress = createProgress({ total: 5, stream, now: () => time });
    time = 110_000;
    progress.update(1);
    expect(stream.written.join('')).toBe('step 1/5  110 s/step  at most 7m20s left\n');
  });

  it('prints notes at once', () => {
    const stream = screen(false);
    const progress = createProgress({ total: 10, stream });
    progress.note('evaluated');
    progress.finish();
    progress.note('late');
    expect(stream.written.join('')).toBe('evaluated\n');
  });
});

describe('progress on a terminal', () => {
  it('updates one line that fits the width, and ends it', () => {
    const stream = screen(true, 50);
    let time = 0;
    const progress = createProgress({ total: 10, stream, now: () => time });
    for (let step = 1; step <= 10; step++) {
      time += 1000;
      progress.update(step, { 'a long name for a loss': 0.123456 });
      if (step === 5) progress.note('a note');
    }
    progress.finish();
    const shown = stream.written.join('');
    for (const line of shown.split(/[\r\n]/))
      expect(line.replace(CONTROL, '').length).toBeLessThanOrEqual(50);
    expect(shown.match(/\n/g)).toHaveLength(2);
    expect(shown).toContain('\r\x1b[2Ka note\n');
    expect(shown.endsWith('\n')).toBe(true);
  });

  it('has the time that is left before what the width cuts off', () => {
    const stream = screen(true, 80);
    let time = 0;
    const progress = createProgress({ total: 304, stream, unit: 'ppo step', now: () => time });
    const facts = { loss: 0.05695, reward: 0.5773, kl: 0.02066, 'tokens/s': 8225 };
    for (const step of [1, 2]) {
      time += 1000;
      progress.update(step, facts);
    }
    const last = (stream.written.at(-1) as string).replace(CONTROL, '');
    expect(last).toMatch(/━ {2}ppo step 2\/304 {2}5m02s left {2}loss 0\.05695/);
    expect(last).toHaveLength(80 - 1);
  });

  it('is redrawn at most ten times a second', () => {
    const stream = screen(true);
    let time = 0;
    const progress = createProgress({ total: 1000, stream, now: () => time });
    for (let step = 1; step < 1000; step++) {
      time += 1;
      progress.update(step);
    }
    expect(stream.written.filter((text) => text.includes('step')).length).toBeLessThanOrEqual(10);
  });

  it('has no colour under NO_COLOR', () => {
    const drawn = () => {
      const stream = screen(true);
      createProgress({ total: 2, stream }).update(1);
      return stream.written.join('');
    };
    process.env.NO_COLOR = '1';
    expect(drawn().match(CONTROL)).toBeNull();
    delete process.env.NO_COLOR;
    expect(drawn().match(CONTROL)).not.toBeNull();
  });
});

describe('short forms', () => {
  it.each([
    [0, '0s'],
    [59.4, '59s'],
    [59.6, '1m00s'],
    [200, '3m20s'],
    [3600, '1h00m'],
    [90_000, '25h00m'],
  ])('of %d seconds is %s', (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
  });

  it.each([
    [0.123456, '0.1235'],
    [1e-5, '0.00001'],
    [9999, '9999'],
    [123_456, '123k'],
    ['cosine', 'cosine'],
  ])('of the metric %s is %s', (value, text) => {
    expect(formatMetric(value)).toBe(text);
  });
});
