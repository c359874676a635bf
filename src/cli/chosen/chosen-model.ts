// The model of a command: one by name or path, or the result of a run.
import { type Model, openSaved } from '../../api/model.js';
import { quantizedSummary } from '../../models/quantize.js';
import { resolveSaved } from '../../run/resolve-saved.js';
import { namedTokenizer } from '../../run/tokenizer.js';
import { type Device, openDevice } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { chosenDevice } from './device.js';
import type { ModelArguments, NamedRun } from './model-options.js';

export interface ChosenModel extends Disposable {
  readonly device: Device;
  readonly model: Model;
  readonly tokenizer: Tokenizer;
  /**
   * Tokens that end a reply: the end-of-text tokens of model and tokenizer, and the chat template's tokens behind a
   * reply.
   */
  readonly eosTokenIds: readonly number[];
}

/** Loads it. It is disposed with its device. */
export async function openChosenModel(args: ModelArguments & NamedRun): Promise<ChosenModel> {
  const { 'run-or-model': first, run = first, model: name = run, adapter } = args;
  const deviceName = await chosenDevice(args.device);
  const saved = await resolveSaved(name, {
    adapter,
    otherBase: args['other-base'],
    tokenizer: args.tokenizer,
    writes: true,
    locate: ([, key]) =>
      key === 'base' ? (name === undefined ? '--adapter' : '--model') : `--${String(key)}`,
  });
  const tokenizer = await namedTokenizer(saved.tokenizer);
  const device = openDevice(deviceName);
  try {
    const model = await openSaved(device, saved, { dtype: args.dtype, quantize: args.quantize });
    const { formats } = model.decoder.options;
    if (formats) console.error(quantizedSummary(formats));
    const eosTokenIds = model.endTokens(tokenizer);
    if (eosTokenIds.length === 0)
      console.error(
        'no token ends a text of this model (config.json, generation_config.json and tokenizer_config.json name none, nor does a chat template): samples go on up to --max-new-tokens',
      );
    const dispose = () => {
      model.dispose();
      device.dispose();
    };
    return { device, model, tokenizer, eosTokenIds, [Symbol.dispose]: dispose };
  } catch (error) {
    device.dispose();
    throw error;
  }
}
