import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { attempt } from '../../native/attempt.js';
import { typedCommand } from '../../native/typed-command.js';
import { argument, command, flag } from '../line/command.js';
import { UsageError } from '../line/error.js';
import { printReport } from './output.js';

export const compareCommand = command({
  command: 'compare <run-a> <run-b>',
  describe: 'Test whether two runs differ significantly on the same steps or problems',
  builder: (argv) =>
    argv
      .positional('run-a', {
        ...argument,
        describe: 'A run directory, or an --output directory of correction or solve',
      })
      .positional('run-b', { ...argument, describe: 'Another one, on the same steps or problems' })
      .option('json', { ...flag, describe: 'Print the comparison as JSON' })
      .example('$0 eval compare runs/sft runs/stepamc', 'paired tests on verdicts and on F1')
      .example('$0 eval compare solved/a solved/b', 'paired tests on solved problems'),
  handler: async ({ 'run-a': a, 'run-b': b, json }) => {
    const { PROBLEMS } = await import('../../eval/solving/dump.js');
    for (const path of [a, b]) if (!existsSync(path)) throw new UsageError(`there is no ${path}`);
    const solved = [a, b].map((path) => path.endsWith(PROBLEMS) || existsSync(join(path, PROBLEMS)));
    if (solved[0] !== solved[1])
      throw new UsageError(
        `${solved[0] ? a : b} holds solved problems and ${solved[0] ? b : a} does not; compare two evaluations of one kind`,
      );
    const kept = [a, b].find((path, i) => !solved[i] && hasSolved(path));
    if (kept !== undefined)
      throw new UsageError(
        `${kept} solved problems and kept no ${PROBLEMS} of them; solve the same problems by both runs with: ${typedCommand(`eval solve FILE --model ${kept} --output DIR`)}, then compare the two DIRs`,
      );
    if (solved[0]) {
      const { compareSolving, formatSolvingComparison } = await import('../../eval/solving/comparison.js');
      const { readSolvedProblems } = await import('../../eval/solving/dump.js');
      const { sharedGrading } = await import('../../eval/solving/report-file.js');
      const solvedA = await readSolvedProblems(a);
      const compared = compareSolving(solvedA, await readSolvedProblems(b), await sharedGrading([a, b]));
      return printReport(compared, json, formatSolvingComparison);
    }
    const { compareVerdicts, formatComparison } = await import('../../eval/comparison.js');
    const { readVerdictDump } = await import('../../eval/reports/dump.js');
    printReport(compareVerdicts(await readVerdictDump(a), await readVerdictDump(b)), json, formatComparison);
  },
});

/** Whether a run says in its eval.json that it was measured by problems, not by judged steps. */
function hasSolved(path: string): boolean {
  const file = join(path, 'eval.json');
  // One that is absent or damaged is reported by its next reader.
  return attempt(
    () => (JSON.parse(readFileSync(file, 'utf8')) as { readonly unit?: unknown } | null)?.unit === 'problems',
    false,
  );
}
