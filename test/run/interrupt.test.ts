import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { listenForInterrupt } from '../../src/run/interrupt.js';

function listening() {
  const source = Object.assign(new EventEmitter(), {
    codes: [] as number[],
    exit: (code: number) => void source.codes.push(code),
  });
  const printed: string[] = [];
  const interruption = listenForInterrupt({
    print: (line) => printed.push(line),
    hint: 'Continue with --resume.',
    source,
  });
  return { source, printed, interruption };
}

describe('interrupting a run', () => {
  it.each(['SIGINT', 'SIGTERM'])('aborts its signal at the first %s', (name) => {
    const { source, printed, interruption } = listening();
    expect(interruption.signal.aborted).toBe(false);
    source.emit(name);
    expect(interruption.signal.aborted).toBe(true);
    expect(printed).toHaveLength(1);
    expect(source.codes).toEqual([]);
  });

  it('ends the process at the second SIGINT, with a hint', () => {
    const { source, printed } = listening();
    source.emit('SIGTERM');
    source.emit('SIGINT');
    expect(source.codes).toEqual([130]);
    expect(printed[1]).toMatch(/Quit at once; .* Continue with --resume\.$/);
  });

  it('does not end the process at a repeated SIGTERM', () => {
    const { source } = listening();
    source.emit('SIGTERM');
    source.emit('SIGTERM');
    expect(source.codes).toEqual([]);
  });

  it('stops listening', () => {
    const { source, interruption } = listening();
    interruption.dispose();
    expect(source.listenerCount('SIGINT') + source.listenerCount('SIGTERM')).toBe(0);
  });
});
