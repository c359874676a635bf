// Ctrl-C and SIGTERM where no command listens: before it does, in one that keeps nothing, and a second time.
import { isWriting } from '../../files/unfinished.js';
import { INTERRUPTED } from '../../run/interrupt.js';

/** Ends the process with a sentence and exit code 130 on a signal that nothing else handles. */
export function quitWhenInterrupted(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => {
      if (process.listenerCount(signal) > 1) return;
      const by = signal === 'SIGTERM' ? ' by SIGTERM' : '';
      console.error(`Stopped${by}${isWriting() ? '; files that were not finished are removed' : ''}.`);
      process.exit(INTERRUPTED);
    });
}
