// `steptrain data problems`: generated word problems as rows, for evaluations and other programs.
import { type WordProblemOptions, wordProblems } from '../../data/problems/generate.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { checkNewFile } from '../line/usage.js';

/** Writes one row of JSON for each problem into a new file. @throws UsageError where the file already exists */
export async function writeProblems(path: string, options: WordProblemOptions): Promise<void> {
  checkNewFile(path, '.jsonl');
  await writeFileAtomically(path, lines(options));
}

/** Yields rows one at a time: too large a number fills the disk, not the memory. */
function* lines(options: WordProblemOptions): Generator<Buffer> {
  for (const row of wordProblems(options)) yield Buffer.from(`${JSON.stringify(row)}\n`);
}
