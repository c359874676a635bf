import { quitWhenInterrupted } from './quit.js';

quitWhenInterrupted();

// `steptrain … | head` closes the pipe early; that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

// Only now, as loading the commands takes longer than a key is pressed.
const { runCli } = await import('./cli.js');
process.exitCode = await runCli(process.argv.slice(2));
