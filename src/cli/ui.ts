import { fileURLToPath } from 'node:url';
import { command, number } from './line/command.js';
import { UsageError } from './line/error.js';
import { checkFolder, checkPort } from './line/usage.js';

/** Default directory of runs. */
const RUNS = 'runs';

export const uiCommand = command({
  command: 'ui [folder]',
  describe: 'Show the runs of a folder in a browser, live, on this machine alone',
  builder: (argv) =>
    argv
      .positional('folder', { type: 'string', default: RUNS, describe: 'Folder of runs, or one run' })
      .option('port', { ...number, default: 7007, describe: 'Port; 0 takes a free one' })
      .example('$0 ui', 'the runs of runs/, on http://127.0.0.1:7007')
      .example('$0 ui runs/my-sweep --port 8080', 'those of a sweep'),
  handler: async ({ folder, port }) => {
    checkPort(port);
    const { existsSync } = await import('node:fs');
    if (existsSync(folder)) checkFolder('folder', folder);
    // The first run may begin after the page.
    else if (folder !== RUNS)
      throw new UsageError(`there is no folder ${folder}; name the one that holds the runs`);
    const { startUi } = await import('../ui/server.js');
    const { listenForInterrupt } = await import('../run/interrupt.js');
    const ui = await startUi({ root: folder, port, program: [PROGRAM] });
    console.log(ui.url);
    console.error('Ctrl-C ends it; runs that were resumed here stop with a checkpoint.');
    const interruption = listenForInterrupt({ print: () => {}, hint: '' });
    await new Promise((resolve) => interruption.signal.addEventListener('abort', resolve));
    await ui.close();
    interruption.dispose();
  },
});

const PROGRAM = fileURLToPath(new URL('./main.js', import.meta.url));
