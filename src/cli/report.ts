import { command, text } from './line/command.js';

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
      .example('$0 report runs/mine', 'write runs/mine/report.html')
      .example('$0 report runs/a runs/b --output a-b.html', 'compare two runs')
      .example('$0 report runs/my-sweep', 'compare the runs of a sweep'),
  handler: async ({ runs, output }) => {
    const { writeReport } = await import('../report/write.js');
    console.log(await writeReport(runs, output));
  },
});
