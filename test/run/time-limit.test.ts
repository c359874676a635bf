import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { limitTime } from '../../src/run/time-limit.js';

describe('a limit of time', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('aborts when the minutes are over, and gives that as the reason', () => {
    const limit = limitTime(new AbortController().signal, 1.5);
    vi.advanceTimersByTime(89_999);
    expect([limit.signal.aborted, limit.expired]).toEqual([false, false]);
    vi.advanceTimersByTime(1);
    expect([limit.signal.aborted, limit.expired]).toEqual([true, true]);
  });

  it('passes on an abort of the given signal with its reason', () => {
    const person = new AbortController();
    const limit = limitTime(person.signal, 1);
    person.abort('SIGINT');
    expect([limit.signal.aborted, limit.expired]).toEqual([true, false]);
  });

  it.each([0, 1e9])('does not end a run of %d minutes', (minutes) => {
    const limit = limitTime(new AbortController().signal, minutes);
    vi.advanceTimersByTime(20 * 24 * 3600 * 1000);
    expect(limit.signal.aborted).toBe(false);
  });

  it('does nothing once it is disposed', () => {
    const limit = limitTime(new AbortController().signal, 1);
    limit.dispose();
    vi.advanceTimersByTime(60_000);
    expect(limit.signal.aborted).toBe(false);
  });
});
