// Opens the reference of an implicit reward model from where its run found it.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Model } from '../../api/model.js';
import { loadAdapter } from '../../models/adapter.js';
import { baseDirectory } from '../../models/base.js';
import type { Decoder, PlacedRole } from '../../models/decoder.js';
import { loadDecoder } from '../../models/load.js';
import { RunError } from '../../run/error.js';
import { isAdapter } from '../../weights/adapter.js';
import type { SettingsOf } from '../settings.js';

/**
 * The model as it was before training: under an adapter the same base without it, which costs no memory; else the base that the
 * run began with, loaded. An adapter that the run went on from belongs to it.
 *
 * @throws RunError for a reference that is not here any more or never was in a file
 */
export async function openReference(
  { decoder, adapter: trained, files }: Pick<Model, 'decoder' | 'adapter' | 'files'>,
  { reference: { model, adapter } }: SettingsOf<'implicit_prm'>,
): Promise<PlacedRole & { dispose(): void }> {
  const name = files?.adapter ?? files?.model ?? 'the model';
  const refuse = (reason: string): never => {
    throw new RunError(
      `${name} is an implicit reward model, whose scores are log-ratios to the model that its training began with, and ${reason}`,
    );
  };
  if (adapter !== undefined && !isAdapter(adapter))
    refuse(`that is ${model} with the adapter ${adapter}, which is not here`);
  const base = trained ? decoder : await loadedBase(decoder, model, refuse);
  const dispose = () => {
    if (base !== decoder) base.dispose();
  };
  if (adapter === undefined) return { decoder: base, role: {}, dispose };
  try {
    const own = loadAdapter(base.device, base.config, adapter);
    return {
      decoder: base,
      role: { adapter: own },
      dispose() {
        own.dispose();
        dispose();
      },
    };
  } catch (error) {
    dispose();
    throw error;
  }
}

async function loadedBase(
  { device, options: { dtype, quantize } }: Decoder,
  model: string | undefined,
  refuse: (reason: string) => never,
): Promise<Decoder> {
  if (model === undefined)
    return refuse('that had random weights (model.base.init), of which there is no file; train from a model');
  const directory = baseDirectory(model);
  if (!existsSync(join(directory, 'config.json'))) return refuse(`that is ${model}, which is not here`);
  return loadDecoder(device, directory, { dtype, quantize });
}
