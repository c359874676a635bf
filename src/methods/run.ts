/** `steptrain run`: from a complete configuration to a trained model and its evaluation. */
import type { RunDirectory } from '../run/directory.js';
import { runMethod } from '../train/recipe.js';
import type { RunResult } from '../train/result.js';
import { methodOf, type RunConfig } from './table.js';

export async function runRecipe(
  config: RunConfig,
  run: RunDirectory,
  signal: AbortSignal,
  options: { readonly resume: boolean },
): Promise<RunResult> {
  const row = methodOf(config);
  const method = { ...(await row.load()), sections: row.sections };
  return runMethod({ method, config, run, signal, ...options });
}
