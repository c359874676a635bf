import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import type { ModelConfig } from '../architectures/config.js';
import type { FloatDtype } from '../weights/dtype.js';
import { UsageError } from './error.js';
import { checkOwnBase } from './other-base.js';

interface MergeArguments {
  readonly base: string;
  readonly adapter: string;
  readonly out?: string;
  readonly dtype: 'f32' | 'bf16' | 'f16' | undefined;
  readonly check: boolean;
  readonly 'other-base': boolean;
}

/** Number of tokens for the comparison. */
const CHECKED_TOKENS = 64;

export const mergeCommand: CommandModule<unknown, MergeArguments> = {
  command: 'merge <base> <adapter> [out]',
  describe: 'Write a base model and its adapter as one model that needs no adapter',
  builder: (argv) =>
    argv
      .positional('base', {
        type: 'string',
        demandOption: true,
        describe:
          'Model directory, hub id or one of the package; may be left out of an adapter whose base is here',
      })
      .positional('adapter', {
        type: 'string',
        demandOption: true,
        describe: 'PEFT adapter directory, or the run that trained it',
      })
      .positional('out', { type: 'string', describe: 'Directory to write' })
      .option('dtype', {
        choices: ['f32', 'bf16', 'f16'] as const,
        describe: 'Dtype of the written weights; default: as in the base',
      })
      .option('check', {
        type: 'boolean',
        default: true,
        describe: 'Compare the logits of the merged model with those of the adapter',
      })
      .option('other-base', {
        type: 'boolean',
        default: false,
        describe: 'Merge into a base that the adapter was not trained on',
      })
      .example('$0 merge runs/sft merged', 'a run, on the base that it was trained on')
      .example('$0 merge models/qwen runs/sft/adapter merged --dtype bf16', 'for a server') as never,
  handler: merge,
};

/** `merge ADAPTER OUT`: the base is the one that the adapter was trained on. */
async function named({ base, adapter, out }: MergeArguments) {
  if (out !== undefined) return { base, given: adapter, out };
  const { baseOf, resolveSaved } = await import('../run/resolve-saved.js');
  const saved = resolveSaved(base);
  if (saved.adapter === undefined)
    throw new UsageError(
      `${base} is neither an adapter nor a run with one; name base, adapter and the directory to write`,
    );
  return { base: baseOf(saved), given: base, out: adapter };
}

async function merge({ dtype, check, 'other-base': otherBase, ...names }: MergeArguments): Promise<void> {
  const { base, given, out } = await named(names as MergeArguments);
  const { mergeAdapter } = await import('../models/merge.js');
  const { readModelConfig } = await import('../architectures/table.js');
  const { openDevice } = await import('../runtime/device.js');
  const { baseDirectory } = await import('../models/base.js');
  const { resolveModel } = await import('../run/paths.js');
  const { isAdapter } = await import('../weights/adapter.js');
  const ofRun = join(given, 'adapter');
  const adapter = !isAdapter(given) && isAdapter(ofRun) ? ofRun : given;
  const resolved = await resolveModel({ base, tokenizer: 'base' }, () => 'base');
  const directory = baseDirectory(resolved.base);
  if (!otherBase) await checkOwnBase({ adapter, base, directory }, 'merge');
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

/** The same ids on every call. */
async function checkedTokens({ vocabSize, maxPositions }: ModelConfig): Promise<number[]> {
  const { PhiloxStream } = await import('../random/philox.js');
  const stream = new PhiloxStream(0, 0x6d726765, 0);
  return Array.from({ length: Math.min(CHECKED_TOKENS, maxPositions) }, () => stream.below(vocabSize));
}
