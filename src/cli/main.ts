import { quitWhenInterrupted } from './line/quit.js';

quitWhenInterrupted();

// `steptrain … | head` closes the pipe early; that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

// Imported late: loading the commands takes longer than pressing a key.
const { runCli } = await import('./cli.js');
process.exitCode = await runCli(process.argv.slice(2));
