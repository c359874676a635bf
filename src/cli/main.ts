import { isWriting } from '../files/unfinished.js';
import { INTERRUPTED } from '../run/interrupt.js';

// Ctrl-C and SIGTERM where no command listens: before it does, in one that keeps nothing, and a second time.
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.on(signal, () => {
    if (process.listenerCount(signal) > 1) return;
    const by = signal === 'SIGTERM' ? ' by SIGTERM' : '';
    console.error(`Stopped${by}${isWriting() ? '; files that were not finished are removed' : ''}.`);
    process.exit(INTERRUPTED);
  });

// `steptrain … | head` closes the pipe early; that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

// Imported late: loading the commands takes longer than pressing a key.
const { runCli } = await import('./cli.js');
process.exitCode = await runCli(process.argv.slice(2));
