import { command, text } from './line/command.js';
import { UsageError } from './line/error.js';

export const reportCommand = command({
  command: 'report <runs..>',
  describe: 'Write a page about a run: curves, results, judged solutions; a comparison of several',
  builder: (argv) =>
    argv
      .positional('runs', {
        type: 'string',
        array: true,
        demandOption: true,
        describe: 'Run directories, or folders of runs such as that of a sweep',
      })
      .option('output', { ...text, describe: 'File to write [default: report.html in the directory]' })
      .option('pictures', {
        ...text,
        describe: 'Instead of a page: a folder for pictures of a sweep’s table, an SVG file a column',
      })
      .example('$0 report runs/mine', 'write runs/mine/report.html')
      .example('$0 report runs/a runs/b --output a-b.html', 'compare two runs')
      .example('$0 report runs/my-sweep', 'compare the runs of a sweep')
      .example('$0 report runs/my-sweep --pictures pictures', 'its table as pictures for a paper or a page'),
  handler: async ({ runs, output, pictures }) => {
    if (pictures === undefined) {
      const { writeReport } = await import('../report/write.js');
      console.log(await writeReport(runs, output));
      return;
    }
    const [sweep, ...more] = runs as [string, ...string[]];
    if (more.length > 0 || output !== undefined)
      throw new UsageError(
        '--pictures draws the table of one sweep: name its folder alone, without --output',
      );
    const { writePictures } = await import('../report/pictures.js');
    for (const path of await writePictures(sweep, pictures)) console.log(path);
  },
});
