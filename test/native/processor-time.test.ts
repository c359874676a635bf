import { Worker } from 'node:worker_threads';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { threadClock, withinProcessorTime } from '../../src/native/processor-time.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { ChatRenderer } from '../../src/tokenizer/chat-template.js';
import { matchNames } from '../../src/weights/name-pattern.js';

/** Takes real time and no processor, as a thread does that the machine has no processor for. */
const kept = (milliseconds: number) =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

const turn = (milliseconds: number) => {
  for (const end = threadClock() + milliseconds; threadClock() < end; );
};

afterEach(() => void vi.restoreAllMocks());

describe('a limit of processor time', () => {
  it('gives what the work gives, and its error', () => {
    expect(withinProcessorTime(() => 7, 1000)).toEqual({ value: 7 });
    expect(() => withinProcessorTime(() => JSON.parse('{'), 1000)).toThrow(SyntaxError);
  });

  it('ends an endless loop and an exponential pattern', () => {
    expect(withinProcessorTime(() => turn(Number.POSITIVE_INFINITY), 100)).toEqual({ late: true });
    expect(withinProcessorTime(() => /(a+)+$/.test(`${'a'.repeat(60)}!`), 100)).toEqual({ late: true });
  });

  it('does not count the time in which the thread has no processor', () => {
    const work = vi.fn(() => {
      kept(450);
      return 'done';
    });
    expect(withinProcessorTime(work, 100)).toEqual({ value: 'done' });
    // Real time of 100, 200, 400 and 800 ms, or more where the machine itself is busy.
    expect(work.mock.calls.length).toBeGreaterThan(1);
  });

  it('ends an endless loop that has little of a processor', () => {
    const work = () => {
      for (;;) {
        kept(15);
        turn(10);
      }
    };
    const began = threadClock();
    expect(withinProcessorTime(work, 100)).toEqual({ late: true });
    expect(threadClock() - began).toBeGreaterThan(90);
  });

  it('does not count what other threads of the process do', async () => {
    const other = new Worker('for (;;);', { eval: true });
    try {
      await new Promise((online) => other.once('online', online));
      const began = [threadClock(), process.cpuUsage()] as const;
      // Until the other thread has had 300 ms.
      do kept(20);
      while (process.cpuUsage(began[1]).user < 300_000);
      expect(threadClock() - began[0]).toBeLessThan(200);
    } finally {
      await other.terminate();
    }
  });
});

describe('on a machine that has no processor for longer than the limit', () => {
  /** The first of the calls waits; the others are as always. */
  const first = <T>(work: () => T, milliseconds: number) => {
    let calls = 0;
    return () => {
      if (calls++ === 0) kept(milliseconds);
      return work();
    };
  };

  it("the package's own tokenizer is taken", () => {
    const { encode } = LibraryTokenizer.prototype;
    let calls = 0;
    vi.spyOn(LibraryTokenizer.prototype, 'encode').mockImplementation(function (
      this: LibraryTokenizer,
      ...args: Parameters<LibraryTokenizer['encode']>
    ) {
      if (calls++ === 0) kept(2300);
      return encode.apply(this, args);
    });
    expect(byteTokenizer().encode('ab')).toEqual(
      [...'ab'].map((letter) => byteTokenizer().encode(letter)[0]),
    );
    expect(calls).toBeGreaterThan(1);
  });

  it('a chat template is rendered', () => {
    const renderer = new ChatRenderer(
      new Map([['default', '{% for m in messages %}{{ m.content }}{% endfor %}']]),
      {},
    );
    const content = first(() => 'hi', 3300);
    const message = {
      role: 'user' as const,
      get content() {
        return content();
      },
    };
    expect(renderer.render([message])).toBe('hi');
  });

  it('patterns of names are matched', () => {
    const test = RegExp.prototype.test;
    const waits = first(() => undefined, 1300);
    vi.spyOn(RegExp.prototype, 'test').mockImplementation(function (this: RegExp, text) {
      waits();
      return test.call(this, text);
    });
    expect(matchNames(['q', 'k'], ['q'], 'x')).toEqual([[true], [false]]);
  });
});
