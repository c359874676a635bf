/** The data of verdict training: records of each part as token sequences, and what happened on the way. */
import type { SftRunConfig, StepAmcRunConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import type { StepRecord } from '../data/record.js';
import type { Part } from '../data/split.js';
import { type VerdictTokenizer, verdictTokenizer } from '../data/verdict.js';
import { configuredRecords } from '../run/inputs.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { type VerdictSequence, verdictSequence } from './sequence.js';

export interface LabelCounts {
  readonly n: number;
  readonly positive: number;
  readonly negative: number;
}

export interface VerdictData {
  /** Sequence i of a part is of record i. Validation and test are cut to `eval.max_samples`. */
  readonly sequences: Readonly<Record<Part, readonly VerdictSequence[]>>;
  readonly records: Readonly<Record<Part, readonly StepRecord[]>>;
  readonly tokenizer: VerdictTokenizer;
  /** Of the training part. */
  readonly labels: LabelCounts;
  /** Labelled steps beyond data.max_length, over all parts. */
  readonly tooLong: number;
  readonly reports: readonly LoadReport[];
}

export async function verdictData(
  config: Pick<SftRunConfig | StepAmcRunConfig, 'data' | 'prompt' | 'sft' | 'eval'>,
  tokenizer: Tokenizer,
): Promise<VerdictData> {
  const { parts, reports } = await configuredRecords(config.data);
  const verdicts = verdictTokenizer(config.prompt, tokenizer);
  const labels = countLabels(parts.train);
  const weigh =
    config.sft.class_weight === 'balanced'
      ? (label: 1 | 0) => labels.n / (2 * (label === 1 ? labels.positive : labels.negative))
      : () => 1;
  const { max_samples: most } = config.eval;
  const limited = (records: readonly StepRecord[]) => (most === 'all' ? records : records.slice(0, most));
  const records = { train: parts.train, validation: limited(parts.validation), test: limited(parts.test) };
  let tooLong = 0;
  const sequencesOf = (list: readonly StepRecord[]) =>
    list.map((record, i) => {
      const solution = verdicts.solution(record, { maxLength: config.data.max_length });
      tooLong += solution.tooLong;
      return verdictSequence(solution, verdicts, i, weigh);
    });
  const sequences = {
    train: sequencesOf(records.train),
    validation: sequencesOf(records.validation),
    test: sequencesOf(records.test),
  };
  return { sequences, records, tokenizer: verdicts, labels, tooLong, reports };
}

function countLabels(records: readonly StepRecord[]): LabelCounts {
  const labels = records
    .flatMap(({ steps }) => steps.map(({ label }) => label))
    .filter((label) => label !== null);
  const positive = labels.filter((label) => label === 1).length;
  return { n: labels.length, positive, negative: labels.length - positive };
}
