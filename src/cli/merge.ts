import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { extname, join, resolve } from 'node:path';
import type { Argv } from 'yargs';
import type { ModelConfig } from '../architectures/config.js';
import type { logitDifference } from '../models/merge.js';
import type { GgufType } from '../models/save-gguf.js';
import { editDistance } from '../native/nearest.js';
import type { FloatName } from '../weights/dtype.js';
import { isJsonObject, type JsonObject } from '../weights/json.js';
import { type ArgumentsOf, argument, command, flag } from './line/command.js';
import { UsageError } from './line/error.js';

const DTYPES = ['f32', 'bf16', 'f16', 'q8_0', 'q4_0'] as const;

/** Number of tokens for the comparison. */
const CHECKED_TOKENS = 64;

type MergeArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('base', {
      ...argument,
      describe:
        'Model directory, hub id or one of the package; may be left out of an adapter whose base is here',
    })
    .positional('adapter', { ...argument, describe: 'PEFT adapter directory, or the run that trained it' })
    .positional('out', { type: 'string', describe: 'Directory to write, or a file FILE.gguf for llama.cpp' })
    .option('dtype', {
      choices: DTYPES,
      describe:
        'Dtype of the written weights; default: as in the base, bf16 in .gguf. q8_0 and q4_0 are for .gguf alone',
    })
    .option('check', {
      type: 'boolean',
      default: true,
      describe: 'Compare the logits of the merged model with those of the adapter',
    })
    .option('other-base', { ...flag, describe: 'Merge into a base that the adapter was not trained on' })
    .example('$0 merge runs/sft merged', 'a run, on the base that it was trained on')
    .example('$0 merge models/qwen runs/sft/adapter merged --dtype bf16', 'for a server')
    .example('$0 merge runs/sft mine.gguf --dtype q8_0', 'for llama.cpp');

export const mergeCommand = command({
  command: 'merge <base> <adapter> [out]',
  describe: 'Write a base model and its adapter as one model that needs no adapter, also as GGUF',
  builder: options,
  handler: merge,
});

interface Named {
  readonly base: string;
  /** The adapter, or the run that trained it; none: the base is written as it is. */
  readonly given: string | undefined;
  readonly out: string;
}

/** `merge ADAPTER OUT`: the base is the one that the adapter was trained on. `merge MODEL OUT.gguf`: there is none. */
async function named({
  base,
  adapter,
  out,
}: Pick<MergeArguments, 'base' | 'adapter' | 'out'>): Promise<Named> {
  if (out !== undefined) return { base, given: adapter, out };
  const { namedModel, savedModel } = await import('../models/saved.js');
  const saved = namedModel(base);
  if (saved.adapter !== undefined)
    return { base: savedModel(base).directory, given: saved.adapter, out: adapter };
  if (isGgufName(adapter)) return { base, given: undefined, out: adapter };
  throw new UsageError(
    `${base} is neither an adapter nor a run with one; name base, adapter and the directory to write`,
  );
}

const isGgufName = (path: string) => path.toLowerCase().endsWith('.gguf');

/** No directory is called `mine.ggf`. */
const isNearlyGguf = (path: string) => editDistance(extname(path).toLowerCase(), '.gguf') <= 2;

async function merge({ dtype, check, 'other-base': otherBase, ...names }: MergeArguments): Promise<void> {
  const { base, given, out } = await named(names);
  const asGguf = isGgufName(out);
  if (!asGguf && isNearlyGguf(out))
    throw new UsageError(`${out} would be a directory; name a file that ends in .gguf, or a directory`);
  if (!asGguf && (dtype === 'q8_0' || dtype === 'q4_0'))
    throw new UsageError(`--dtype ${dtype} is for GGUF files; name the output ${out}.gguf`);
  const { baseDirectory } = await import('../models/base.js');
  const { readCard } = await import('../models/card.js');
  const { resolveModel } = await import('../run/paths.js');
  const resolved = await resolveModel({ base, tokenizer: 'base' }, () => 'base');
  const directory = baseDirectory(resolved.base);
  if (!asGguf) {
    await writeMerged(directory, given as string, out, dtype as FloatName | undefined);
    return;
  }
  const { ggufKeys, saveGguf } = await import('../models/save-gguf.js');
  const type = (dtype ?? 'bf16').toUpperCase() as GgufType;
  if (existsSync(out)) throw new UsageError(`${out} is there already; name another file or remove it`);
  let adapter: string | undefined;
  if (given === undefined) {
    await saveGguf(directory, out, type);
  } else {
    // Refused before the work: shape and tokenizer of the base are those of the merged model.
    await ggufKeys(directory);
    // The merged model is in f32 first, so that weights are rounded once.
    const between = await mkdtemp(`${resolve(out)}.merged-`);
    try {
      adapter = await writeMerged(directory, given, between, 'f32');
      await saveGguf(between, out, type);
    } finally {
      await rm(between, { recursive: true, force: true });
    }
  }
  console.log(`wrote ${out}: ${type}, for llama.cpp and what reads its files`);
  if (check) await checkWritten(type, { base: directory, adapter, output: baseDirectory(out), file: out });

  async function writeMerged(
    directory: string,
    given: string,
    to: string,
    dtype: FloatName | undefined,
  ): Promise<string> {
    const { mergeAdapter } = await import('../models/merge.js');
    const { readModelConfig } = await import('../architectures/table.js');
    const { openDevice } = await import('../runtime/device.js');
    const { isAdapter } = await import('../weights/adapter.js');
    const ofRun = join(given, 'adapter');
    const adapter = !isAdapter(given) && isAdapter(ofRun) ? ofRun : given;
    const { checkOwnBase } = await import('../run/trained-on.js');
    if (!otherBase) await checkOwnBase({ adapter, base, directory }, 'merge');
    const { changesNothing } = await import('../weights/no-change.js');
    const unchanged = changesNothing(adapter);
    if (unchanged !== undefined) console.error(`warning: ${unchanged}`);
    using device = openDevice('cpu');
    const tokens = check ? await checkedTokens(readModelConfig(directory)) : undefined;
    const report = await mergeAdapter(device, directory, adapter, to, {
      // Checked above.
      otherBase: true,
      ...(dtype ? { dtype } : {}),
      ...(tokens ? { check: [tokens] } : {}),
    });
    const { merged, replaced, largestDifference, largestLogit } = report;
    const whole = replaced > 0 ? ` and ${replaced} whole weights` : '';
    console.log(
      `${asGguf ? '' : `wrote ${to}: `}${merged} adapted weights merged${whole}${asGguf ? '' : `, stored ${report.dtype === 'mixed' ? 'each as in the base' : `as ${report.dtype.toUpperCase()}`}`}`,
    );
    const judge = readCard(adapter)?.judge;
    if (judge && asGguf)
      console.log(`a .gguf file says nothing of judging, so steptrain judge takes ${given} as before`);
    else if (isJsonObject(judge?.likelihood))
      console.log(`it judges steps by its verdict words alone: ${notMerged(judge.likelihood, given)}`);
    if (largestDifference !== undefined && largestLogit !== undefined) {
      console.log(
        `largest logit difference to the adapter on ${tokens?.length} random tokens: ` +
          `${largestDifference.toPrecision(3)}, of logits up to ${largestLogit.toPrecision(3)}`,
      );
    }
    return adapter;
  }
}

/** Largest difference of a logit, relative to the largest one, where nothing was rounded. */
const F32_DIFFERENCE = 1e-3;

/**
 * Reads the written file back, since rounding to the type of a GGUF file comes after the merge.
 *
 * @throws FileError for a file in F32 that holds another model; it is removed
 */
async function checkWritten(
  type: GgufType,
  { file, ...models }: Parameters<typeof logitDifference>[1] & { readonly file: string },
): Promise<void> {
  const { logitDifference } = await import('../models/merge.js');
  const { readModelConfig } = await import('../architectures/table.js');
  const { openDevice } = await import('../runtime/device.js');
  using device = openDevice('cpu');
  const tokens = await checkedTokens(readModelConfig(models.base));
  const { largestDifference, largestLogit } = await logitDifference(device, models, [tokens]);
  const other = models.adapter === undefined ? 'the model' : 'the adapter';
  console.log(
    `as written in ${type}, read back: ${largestDifference.toPrecision(3)} to ${other}, ` +
      `of logits up to ${largestLogit.toPrecision(3)}`,
  );
  if (type !== 'F32' || largestDifference <= F32_DIFFERENCE * largestLogit) return;
  await rm(file, { force: true });
  const { FileError } = await import('../files/error.js');
  throw new FileError(
    `${file} was another model than the one that was written, and is removed; please report this model's config.json, and write a directory instead`,
  );
}

/** The other evidence that judged, and why the merged model goes without it. */
function notMerged({ of, verdict }: JsonObject, given: string): string {
  if (of !== 'calculations') return 'the base, whose likelihood judged too, is no longer there by itself';
  const weighed = verdict === 0 ? 'which judged without them' : 'which were weighed with them';
  return `calculations, ${weighed}, are computed where the judge is ${given}`;
}

/** The same ids on every call. */
async function checkedTokens({ vocabSize, maxPositions }: ModelConfig): Promise<number[]> {
  const { PhiloxStream } = await import('../random/philox.js');
  const stream = new PhiloxStream(0, 0x6d726765, 0);
  return Array.from({ length: Math.min(CHECKED_TOKENS, maxPositions) }, () => stream.below(vocabSize));
}
