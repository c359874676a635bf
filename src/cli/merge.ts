import { basename, join } from 'node:path';
import type { CommandModule } from 'yargs';
import type { ModelConfig } from '../architectures/config.js';
import type { FloatDtype } from '../weights/dtype.js';

interface MergeArguments {
  readonly base: string;
  readonly adapter: string;
  readonly out: string;
  readonly dtype: 'f32' | 'bf16' | 'f16' | undefined;
  readonly check: boolean;
}

/** Number of tokens for the comparison. */
const CHECKED_TOKENS = 64;

export const mergeCommand: CommandModule<unknown, MergeArguments> = {
  command: 'merge <base> <adapter> <out>',
  describe: 'Write a base model and its adapter as one model that needs no adapter',
  builder: (argv) =>
    argv
      .positional('base', {
        type: 'string',
        demandOption: true,
        describe: 'Model directory, hub id or embedded',
      })
      .positional('adapter', {
        type: 'string',
        demandOption: true,
        describe: 'PEFT adapter directory, or the run that trained it',
      })
      .positional('out', { type: 'string', demandOption: true, describe: 'Directory to write' })
      .option('dtype', {
        choices: ['f32', 'bf16', 'f16'] as const,
        describe: 'Dtype of the written weights; default: as in the base',
      })
      .option('check', {
        type: 'boolean',
        default: true,
        describe: 'Compare the logits of the merged model with those of the adapter',
      })
      .example('$0 merge models/qwen runs/sft/adapter merged --dtype bf16', 'for a server') as never,
  handler: merge,
};

async function merge({ base, adapter: given, out, dtype, check }: MergeArguments): Promise<void> {
  const { mergeAdapter } = await import('../models/merge.js');
  const { readModelConfig } = await import('../architectures/table.js');
  const { openDevice } = await import('../runtime/device.js');
  const { baseDirectory } = await import('../models/base.js');
  const { resolveModel } = await import('../run/paths.js');
  const { isAdapter, readAdapterConfig } = await import('../weights/adapter.js');
  const ofRun = join(given, 'adapter');
  const adapter = !isAdapter(given) && isAdapter(ofRun) ? ofRun : given;
  const resolved = await resolveModel({ base, tokenizer: 'base' }, () => 'base');
  const directory = baseDirectory(resolved.base);
  const { baseModel } = readAdapterConfig(adapter);
  if (baseModel !== undefined && !isSameModel(baseModel, base, directory)) {
    console.error(
      `warning: ${adapter} was trained on ${baseModel}, and ${base} has another name; if it is another model, the merged one is useless`,
    );
  }
  const device = openDevice('cpu');
  try {
    const tokens = check ? await checkedTokens(readModelConfig(directory)) : undefined;
    const report = await mergeAdapter(device, directory, adapter, out, {
      ...(dtype ? { dtype: dtype.toUpperCase() as FloatDtype } : {}),
      ...(tokens ? { check: [tokens] } : {}),
    });
    const { merged, replaced, largestDifference, largestLogit } = report;
    const whole = replaced > 0 ? ` and ${replaced} whole weights` : '';
    console.log(`wrote ${out}: ${merged} adapted weights merged${whole}, stored as ${report.dtype}`);
    if (largestDifference !== undefined && largestLogit !== undefined) {
      console.log(
        `largest logit difference to the adapter on ${tokens?.length} random tokens: ` +
          `${largestDifference.toPrecision(3)}, of logits up to ${largestLogit.toPrecision(3)}`,
      );
    }
  } finally {
    device.dispose();
  }
}

/** Whether the name in adapter_config.json can mean this base: directories are moved, hub ids are downloaded. */
function isSameModel(named: string, given: string, directory: string): boolean {
  const last = (path: string) => basename(path.replace(/@[^/]*$/, ''));
  return [given, directory].some((path) => path === named || last(path) === last(named));
}

/** The same ids on every call. */
async function checkedTokens({ vocabSize, maxPositions }: ModelConfig): Promise<number[]> {
  const { PhiloxStream } = await import('../random/philox.js');
  const stream = new PhiloxStream(0, 0x6d726765, 0);
  return Array.from({ length: Math.min(CHECKED_TOKENS, maxPositions) }, () => stream.below(vocabSize));
}
