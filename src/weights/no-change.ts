/** Adapters that change nothing, as those of runs that found no step better than their start. */
import { openAdapterWeights } from './adapter.js';
import { readStoredF32 } from './checkpoint.js';

/**
 * A sentence where every `lora_B` of an adapter is 0, as before training, and no weight is kept whole; undefined for others.
 *
 * @throws WeightsError for a file of weights that is damaged or not there
 */
export function changesNothing(adapter: string): string | undefined {
  const file = openAdapterWeights(adapter);
  try {
    for (const name of file.tensors.keys()) {
      if (/\.lora_A\.weight$/.test(name)) continue;
      if (!/\.lora_B\.weight$/.test(name)) return undefined;
      if (readStoredF32(file, name).some((value) => value !== 0)) return undefined;
    }
  } finally {
    file.close();
  }
  return (
    `${adapter} changes nothing: every lora_B in it is 0, ` +
    'as where a run found no step better than step 0 and kept the parameters of that one'
  );
}
