// `steptrain data rationales`: reasons for labelled steps, sampled from a model and kept where its verdict is the label.
import { join } from 'node:path';
import type { DataConfig, PromptConfig } from '../../config/schema.js';
import { isGenerated } from '../../data/generated.js';
import { limited, solutionRank } from '../../data/limit.js';
import { verdictTokenizer } from '../../data/verdict.js';
import { modelFingerprint } from '../../eval/solving/settings.js';
import { percent } from '../../eval/statistics/percent.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { emptyTally, type ReasonTally, withSampledReasons } from '../../methods/stepamc/rationales.js';
import type { RunConfig } from '../../methods/table.js';
import { DEFAULT_MODEL } from '../../models/saved.js';
import { ending } from '../../native/ending.js';
import { plural } from '../../native/shown.js';
import type { StepRecord } from '../../records/record.js';
import { dataContent } from '../../run/inputs.js';
import { openJournal } from '../../run/journal.js';
import { configuredRecords, withheldRecords } from '../../run/parts.js';
import { createProgress } from '../../terminal/progress.js';
import { openChosenModel } from '../chosen/chosen-model.js';
import type { ModelArguments, NamedRun } from '../chosen/model-options.js';
import { Interrupted, UsageError } from '../line/error.js';
import { untilInterrupted } from '../line/interrupt.js';

export interface RationaleArguments extends ModelArguments {
  readonly k: number;
  readonly temperature: number;
  readonly seed: number;
}

/** Solutions written at a time; a stop loses at most so many. */
const BATCH = 16;
const FILE = 'rationales.jsonl';

/**
 * Writes the training part into `directory` with the reasons found, or goes on there, and each held-out part that has no file of its
 * own into a file beside it: divided anew, what is generated would fall into other parts. Labels and reasons that the recipe withholds
 * from training are not in the first. Lines to print.
 */
export async function makeRationales(
  config: RunConfig,
  directory: string,
  args: RationaleArguments & NamedRun,
): Promise<string[]> {
  const { data, prompt } = verdictSections(config);
  const { train: all, ...heldOut } = (await configuredRecords(data)).parts;
  const train = withheldRecords(all, data);
  using chosen = await openChosenModel(args);
  const { model, tokenizer } = chosen;
  using interruption = ending(untilInterrupted());
  const { k: attempts, temperature, seed } = args;
  const named = { model: args.run ?? args.model ?? DEFAULT_MODEL, adapter: args.adapter };
  const weights = await modelFingerprint(model, tokenizer);
  const settings = {
    data,
    prompt,
    attempts,
    temperature,
    seed,
    ...named,
    weights,
    files: await dataContent(data),
  };
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const journal = await openJournal(directory, FILE, JSON.parse(JSON.stringify(settings)));
  const tally = emptyTally();
  const start = journal.rows;
  let done = start;
  const progress = createProgress({ total: train.length, start: done, unit: 'solution' });
  try {
    while (done < train.length) {
      const found = await withSampledReasons(
        model.decoder,
        train.slice(done, done + BATCH),
        {
          ...{ tokenizer: verdicts, role: model.role, attempts, temperature, seed },
          ...{ maxLength: data.max_length, signal: interruption.signal },
        },
        { first: done, tally },
      );
      if (!found)
        throw new Interrupted(
          `Stopped after ${plural(done, 'solution')}; the same command again goes on in ${directory}.`,
        );
      for (const record of found) journal.append({ ...record });
      done += found.length;
      progress.update(done, { kept: tally.kept[1] + tally.kept[0] });
    }
  } finally {
    progress.finish();
    await journal.close();
  }
  const written = (['validation', 'test'] as const).filter(
    (part) => data[part] === undefined && heldOut[part].length > 0,
  );
  // The first of generated problems are judged, and of a file's a draw: it would be another one.
  const judged = (records: readonly StepRecord[]) =>
    isGenerated(data.source) ? limited(records, config.eval.max_samples, data, solutionRank) : records;
  const fileOf = (part: string) => join(directory, `${part}.jsonl`);
  for (const part of written)
    await writeFileAtomically(
      fileOf(part),
      judged(heldOut[part]).map((record) => Buffer.from(`${JSON.stringify(record)}\n`)),
    );
  const paths = [['train', journal.path], ...written.map((part) => [part, fileOf(part)])];
  // The file no longer holds what was withheld.
  const whole = { source: 'record', rationales: 'all', labelled: 'all', label_noise: 0 };
  const reading = [...Object.entries(whole), ...paths].map(([key, value]) => `--set data.${key}=${value}`);
  return [
    ...(start > 0 ? [`${start} solutions were done before; of the other ${done - start}:`] : []),
    ...tallyLines(tally),
    `wrote ${paths.map(([, path]) => path).join(', ')}`,
    `a run learns from all of these reasons with ${reading.join(' ')}`,
  ];
}

function verdictSections(config: RunConfig): { readonly data: DataConfig; readonly prompt: PromptConfig } {
  if ('prompt' in config && config.prompt.response_format === 'rationale_then_verdict') return config;
  throw new UsageError(
    'the recipe does not ask for reasons; name one of method stepamc or sft with prompt.response_format: rationale_then_verdict',
  );
}

function tallyLines({ asked, tooLong, attempts, unreadable, kept, of }: ReasonTally): string[] {
  const share = (label: 1 | 0) =>
    `${kept[label]} of ${of[label]}${of[label] > 0 ? ` (${percent(kept[label] / of[label])} %)` : ''}`;
  return [
    `${asked} labelled steps without a reason: ${attempts} attempts, ${unreadable} of them without a verdict that can be read`,
    `reasons kept: of right steps ${share(1)}, of wrong steps ${share(0)}`,
    ...(tooLong > 0 ? [`${tooLong} steps leave no room for a reason within data.max_length`] : []),
  ];
}
