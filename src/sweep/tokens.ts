// How many tokens a run will train, before it has run: by its data and the passes over it.
import { loadRunConfig } from '../methods/config.js';
import { methodOf } from '../methods/table.js';
import { resolveInputs } from '../run/paths.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import { trainedTokens as plannedTokens } from '../train/planned-work.js';
import type { Cell } from './cells.js';
import type { SweepFolder } from './folder.js';
import { readResults } from './values.js';

/** Of a run that has ended: as its log counts them. */
export async function trainedTokens(directory: string): Promise<number | undefined> {
  const { log } = await readResults(directory);
  const counts = log.flatMap(({ tokens }) => (typeof tokens === 'number' ? [tokens] : []));
  return counts.length > 0 ? Math.max(...counts) : undefined;
}

/**
 * Of one that has not: the training tokens times the passes of each section, or its max_steps. What a model writes itself is not
 * known and not in it. Reads and tokenises the data, which the run then finds done.
 */
export async function estimatedTokens(folder: SweepFolder, cell: Cell): Promise<number | undefined> {
  const loaded = await loadRunConfig(folder.recipe(cell), cell.settings);
  const config = await resolveInputs(loaded.config, loaded.locate);
  const row = methodOf(config);
  const method = await row.load();
  const tokenizer = await configuredTokenizer(config.model);
  const data = await method.data(config, tokenizer, new AbortController().signal);
  if (data === undefined) return undefined;
  data.close();
  return plannedTokens(row.sections(config), data);
}
