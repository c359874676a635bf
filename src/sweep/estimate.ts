// How many tokens a run will train.
import { loadRunConfig } from '../methods/config.js';
import { methodOf } from '../methods/table.js';
import { resolveInputs } from '../run/paths.js';
import { openDevice } from '../runtime/device.js';
import { plannedWork } from '../train/plan/planned-work.js';
import { prepare } from '../train/plan/prepared.js';
import type { Cell } from './cells.js';
import type { SweepFolder } from './folder.js';

/**
 * The tokens of a run by the plan of its stages, without those that it begins from. Reads and tokenises the data, which the run then finds done; loads no weight.
 * Undefined where a stage trains on what the run makes itself.
 */
export async function estimatedTokens(folder: SweepFolder, cell: Cell): Promise<number | undefined> {
  const loaded = await loadRunConfig(folder.recipe(cell), await folder.ownSettings(cell));
  const prepared = await prepare(await resolveInputs(loaded.config, loaded.locate));
  const { config, shape } = prepared;
  const method = await methodOf(config).load();
  const tokenizer = await prepared.tokenizer();
  const data = await method.data(config, tokenizer, new AbortController().signal);
  if (data === undefined) return undefined;
  const device = openDevice('cpu');
  try {
    const microBatchTokens = () => config.data.max_length;
    const { tokens, untold } = plannedWork({
      method,
      config,
      tokenizer,
      data,
      shape,
      device,
      microBatchTokens,
    });
    return untold.length === 0 ? tokens : undefined;
  } finally {
    device.dispose();
    data.close();
  }
}
