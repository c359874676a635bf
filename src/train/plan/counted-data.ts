/** The data of a run that is only planned: their amount and, unless a file is too large, their tokens. */

import type { FrameConfig } from '../../config/schema.js';
import { generatorOf } from '../../data/generated.js';
import type { LoadOptions, LoadReport } from '../../data/load.js';
import { PARTS, type Part } from '../../data/split.js';
import { type DataStatistics, StatisticsCounter } from '../../data/statistics.js';
import { DataError } from '../../files/data-error.js';
import { plural } from '../../native/shown.js';
import type { StepRecord } from '../../records/record.js';
import { configuredRecords, dividedRecords, nothingToTrainOn } from '../../run/parts.js';
import { toLog } from '../../terminal/log.js';
import { formatTable } from '../../terminal/table.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { Method, RunData } from '../method.js';
import type { Prepared } from './prepared.js';

/** Max training solutions that are tokenised to count steps: more take minutes. */
const MAX_TOKENISED = 100_000;

type Counts = Pick<DataStatistics, 'solutions' | 'positive' | 'negative' | 'unlabelled'>;

export interface CountedData {
  readonly counts: Readonly<Record<Part, Counts>>;
  readonly reports: readonly LoadReport[];
  /** Sentences on dangers to the training; none where the data is too large to be tokenised for a plan. */
  readonly warnings: readonly string[];
  /** Absent where there are too many solutions, or no tokenizer; whoever asked closes it. */
  readonly tokenised?: { readonly data: RunData; readonly tokenizer: Tokenizer };
  /** Why there are no tokens, where the run itself would fail for that. */
  readonly failure?: string;
}

/**
 * The counts of the parts. Rows of files are counted before they are tokenised, which of many takes minutes; generated
 * problems only as they are tokenised, since making them takes longer than the rest.
 */
export async function countData<Config extends FrameConfig>(
  method: Pick<Method<Config>, 'data'>,
  { config, tokenizer: readTokenizer }: Pick<Prepared<Config>, 'config' | 'tokenizer'>,
): Promise<CountedData> {
  const records = async () => {
    return { ...(await countRecords(config.data, { problems: !('prompt' in config) })), warnings: [] };
  };
  const { source } = config.data;
  const generator = generatorOf(source);
  const few = generator !== undefined && config.data[generator].samples <= MAX_TOKENISED;
  const read = few ? undefined : await records();
  if (read && read.counts.train.solutions > MAX_TOKENISED) return read;
  try {
    const tokenizer = await readTokenizer();
    toLog('reading and tokenising the data, to count steps');
    const data = await method.data(config, tokenizer, new AbortController().signal);
    if (!data) return read ?? (await records());
    const { summary, reports } = data;
    return { counts: summary.parts, reports, warnings: summary.warnings, tokenised: { data, tokenizer } };
  } catch (error) {
    if (!(error instanceof DataError && error.kind === 'tokenizer')) throw error;
    return { ...(read ?? (await records())), failure: `steps are not known: ${error.message}` };
  }
}

/** Lines of a plan: the solutions of each part, and their steps by label; problems to solve have none. */
export function formatCounts(counts: CountedData['counts']): readonly string[] {
  const all = PARTS.map((part) => counts[part]);
  const labelled = all.some(({ positive, negative }) => positive + negative > 0);
  const what = labelled || all.some(({ unlabelled }) => unlabelled > 0) ? 'solution' : 'problem';
  const rows = PARTS.map((part) => {
    const { solutions, positive, negative, unlabelled } = counts[part];
    const texts = [
      plural(solutions, what),
      ...(labelled ? [`${positive} right and ${negative} wrong steps`] : []),
      ...(unlabelled > 0 ? [`${unlabelled} ${labelled ? '' : 'steps '}without a label to learn`] : []),
    ];
    return [part, texts.join(', ')];
  });
  return formatTable(rows, { isLeft: () => true, indent: 2 }).split('\n');
}

async function countRecords(
  data: FrameConfig['data'],
  options: Pick<LoadOptions, 'problems'>,
): Promise<Pick<CountedData, 'counts' | 'reports'>> {
  const counters = {
    train: new StatisticsCounter(),
    validation: new StatisticsCounter(),
    test: new StatisticsCounter(),
  };
  const add = (part: Part, { steps, context_steps }: StepRecord) =>
    counters[part].add({ problem: 0, labels: steps.map(({ label }) => label), context_steps });
  const counts = () => ({
    train: counters.train.result(),
    validation: counters.validation.result(),
    test: counters.test.result(),
  });
  if (data.max_samples !== 'all' || data.balance !== 'none') {
    const { parts, reports } = await configuredRecords(data, options);
    for (const part of PARTS) for (const record of parts[part]) add(part, record);
    return { counts: counts(), reports };
  }
  // Nothing is chosen among them, so none has to stay in memory.
  const reports: LoadReport[] = [];
  for await (const { part, record } of dividedRecords(data, reports, options)) add(part, record);
  const counted = counts();
  if (counted.train.solutions === 0)
    throw nothingToTrainOn(data, {
      train: 0,
      validation: counted.validation.solutions,
      test: counted.test.solutions,
    });
  return { counts: counted, reports };
}
