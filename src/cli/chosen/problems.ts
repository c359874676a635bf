import type { LoadedProblems, ProblemOptions } from '../../data/benchmarks/load.js';

/** The problems of files, with a warning on parts of their rows that nobody is asked, such as a system message. */
export async function chosenProblems(path: string, options?: ProblemOptions): Promise<LoadedProblems> {
  const { loadProblems } = await import('../../data/benchmarks/load.js');
  const { unaskedWarning } = await import('../../data/benchmarks/unasked.js');
  const loaded = await loadProblems(path, options);
  for (const warning of unaskedWarning(loaded.unasked)) console.error(`Warning: ${warning}`);
  return loaded;
}
