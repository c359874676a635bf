/**
 * Checks from headers, before anything is made, whether a run can begin with the adapter that `model.adapter` names.
 */
import { isDeepStrictEqual } from 'node:util';
import { modelModules, readModelConfig } from '../../architectures/table.js';
import { adapterSection, adapterUse, isEnding } from '../../config/adapter.js';
import { ConfigError } from '../../config/error.js';
import type { FrameConfig, LoraConfig } from '../../config/schema.js';
import { openAdapterOf } from '../../models/adapter.js';
import { baseDirectory } from '../../models/base.js';
import { readMergedAdapter } from '../../models/merged-adapter.js';
import { trainedOn } from '../../run/trained-on.js';
import { WeightsError } from '../../weights/error.js';
import { loraPlan } from '../../weights/lora-plan.js';
import { loraConfig } from '../roles/lora-config.js';

/** Keys of `lora` that an adapter fixes by value; its modules are compared by content. */
const FIXED = ['r', 'lora_alpha', 'use_rslora', 'rank_pattern', 'alpha_pattern'] as const;

/**
 * Checks an adapter against the base and the section `lora` of a configuration whose paths are absolute.
 *
 * @throws ConfigError for an adapter of another base, or that is not what `lora` says
 */
export async function checkAdapter({ model, lora }: Pick<FrameConfig, 'model' | 'lora'>): Promise<void> {
  const { adapter, base } = model;
  // config/checks.ts refuses other bases and `none`.
  if (adapter === undefined || typeof base !== 'string' || lora === undefined || lora === 'none') return;
  const directory = baseDirectory(base);
  await checkBase(adapter, base, directory);
  const shape = readModelConfig(directory);
  // Names and shapes are compared where it is opened on the base.
  const { plan, file } = fitting(`model.adapter does not fit model.base ${base}`, () =>
    openAdapterOf(shape, adapter),
  );
  file.close();
  if (adapterUse(model).merged !== undefined)
    return void fitting('model.adapter_mode stack', () => readMergedAdapter(shape, adapter));
  checkSection(adapter, lora);
  const planned = loraPlan(loraConfig(lora, directory), modelModules(shape));
  const [expected, found] = [plan, planned].map((each) => each.modules.map(({ module }) => module)) as [
    string[],
    string[],
  ];
  const different =
    expected.find((name) => !found.includes(name)) ?? found.find((name) => !expected.includes(name));
  if (different !== undefined)
    refuse('target_modules', adapter, `${expected.length} modules`, `${found.length} (${different} differs)`);
}

/** The result of `read`; its refusal of the adapter's files becomes an error of the configuration. */
function fitting<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof WeightsError)) throw error;
    throw new ConfigError(`${what}: ${error.message}`);
  }
}

function checkSection(adapter: string, lora: LoraConfig): void {
  const own = adapterSection(adapter);
  for (const key of FIXED)
    if (!isDeepStrictEqual(lora[key], own[key]))
      refuse(key, adapter, JSON.stringify(own[key]), JSON.stringify(lora[key]));
  const sorted = (names: readonly string[]) => names.filter((name) => !isEnding(name)).sort();
  const [expected, found] = [own, lora].map(({ modules_to_save: names }) => sorted(names));
  if (!isDeepStrictEqual(found, expected))
    refuse('modules_to_save', adapter, JSON.stringify(expected), JSON.stringify(found));
}

function refuse(key: string, adapter: string, expected: string, found: string): never {
  throw new ConfigError(
    `lora.${key}: expected ${expected} as in ${adapter}, which model.adapter continues, found ${found}; remove lora.${key}`,
  );
}

/** Checks the base that the adapter names, as far as that is known here; shapes check the rest. */
async function checkBase(adapter: string, base: string, directory: string): Promise<void> {
  const { named, same } = await trainedOn(adapter, base, directory);
  if (same !== 'no') return;
  throw new ConfigError(
    `model.adapter ${adapter} was trained on ${named}, and model.base is ${base}, another model; set model.base to ${named}`,
  );
}
