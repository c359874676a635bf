/** The data of an offline method: answers or pairs of each part in tokens, and what was left out and why. */
import type { DataConfig } from '../../../config/schema.js';
import { type Dataset, inMemory } from '../../../data/dataset.js';
import { problemKey } from '../../../data/overlap.js';
import { PARTS, type Part } from '../../../data/split.js';
import { summarizeTrainingData } from '../../../data/summary.js';
import { describeTraining } from '../../../data/training-files.js';
import { badFile } from '../../../files/data-error.js';
import type { StepRecord } from '../../../records/record.js';
import { configuredRecords } from '../../../run/parts.js';
import { isLearned, type OfflineItem } from '../../../scoring/implicit/items.js';
import { answerTokenizer } from '../../../scoring/implicit/tokens.js';
import { toLog, warn } from '../../../terminal/log.js';
import { replyEndWarning } from '../../../tokenizer/reply-end.js';
import type { SegmentSpan } from '../../../tokenizer/segments.js';
import type { Tokenizer } from '../../../tokenizer/tokenizer.js';
import type { PreviewSample, RunData } from '../../../train/method.js';
import type { ItemKind } from './kinds.js';

export interface OfflineData extends RunData {
  readonly items: Readonly<Record<Part, Dataset<OfflineItem>>>;
}

export interface OfflineDataConfig {
  readonly data: DataConfig;
  readonly question: { readonly template: string };
}

/** @throws DataError if the data cannot be used or nothing is left to train on */
export async function offlineData(
  { data, question }: OfflineDataConfig,
  tokenizer: Tokenizer,
  kind: ItemKind,
): Promise<OfflineData> {
  const { parts, reports } = await configuredRecords(data);
  const tokens = answerTokenizer(tokenizer, question.template);
  for (const sentence of replyEndWarning(tokenizer)) toLog(sentence);
  const items = {} as Record<Part, Dataset<OfflineItem>>;
  for (const part of PARTS) {
    reportUnused(part, parts[part], kind);
    const made = kind.items(parts[part], tokens, (rows, reason) => {
      if (rows > 0) toLog(`${part}: ${rows} of ${parts[part].length} rows ${reason} are left out`);
    });
    reportReasoning(part, made);
    const fitting = made.filter((item) => fits(item, data.max_length));
    const left = made.length - fitting.length;
    if (left > 0)
      toLog(
        `${part}: ${left} of ${made.length} ${kind.noun} are longer than data.max_length ${data.max_length} and are left out`,
      );
    items[part] = inMemory(fitting);
  }
  if (items.train.length === 0) {
    throw badFile(`${describeTraining(data)} gives no ${kind.noun} to train on: ${kind.expected}`);
  }
  const doubt = kind.doubt?.(Array.from(items.train));
  if (doubt !== undefined) warn(doubt);
  return {
    items,
    summary: summarizeTrainingData({
      train: parts.train.map(summarizedFor(kind)),
      validation: parts.validation.map(summarizedFor(kind)),
      test: parts.test.map(summarizedFor(kind)),
    }),
    reports,
    close() {},
  };
}

function reportUnused(part: Part, records: readonly StepRecord[], kind: ItemKind): void {
  const counts = new Map<string, number>();
  for (const record of records) {
    const reason = kind.unused?.(record);
    if (reason !== undefined) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  for (const [reason, count] of counts)
    toLog(`${part}: ${count} of ${records.length} rows ${reason} are left out`);
}

/** Transformers renders such replies without a word, and TRL warns that prompt and conversation differ. */
function reportReasoning(part: Part, items: readonly OfflineItem[]): void {
  const answers = items.flatMap(({ answers }) => answers);
  const say = (tags: readonly (string | undefined)[], sentence: (tag: string) => string) => {
    const found = tags.filter((tag) => tag !== undefined);
    if (found[0] !== undefined)
      toLog(`${part}: ${found.length} of ${answers.length} answers ${sentence(found[0])}`);
  };
  say(
    answers.map(({ unclosed }) => unclosed),
    (end) =>
      `never write ${end}, the end of the reasoning that their prompt opens: the model learns to answer inside its reasoning; ` +
      `put reasoning and ${end} before the answer, or take a chat template that opens none`,
  );
  say(
    answers.map(({ reopens }) => reopens),
    (mark) =>
      `begin with ${mark}, with which their prompt ends: the model learns to write a second one; remove one of the two (texts are ` +
      'learned word for word)',
  );
}

function fits({ prompt, answers }: OfflineItem, maxLength: number): boolean {
  return answers.every(({ ids }) => prompt.length + ids.length <= maxLength);
}

/** Labels of steps that nothing is learned from are none. */
function summarizedFor({ judgesSteps = false }: ItemKind) {
  return ({ problem, steps, context_steps }: StepRecord) => {
    const labels = steps.map(({ label }) => (judgesSteps ? label : null));
    return { key: problemKey(problem), labels, context_steps, text: () => problem };
  };
}

/** Each item that a record gives by itself, for `data preview`; a row for each of its answers. */
export function offlinePreview(
  { question }: OfflineDataConfig,
  tokenizer: Tokenizer,
  kind: ItemKind,
): (record: StepRecord) => Iterable<PreviewSample> {
  const tokens = answerTokenizer(tokenizer, question.template);
  return function* (record) {
    for (const { prompt, answers } of kind.items([record], tokens)) {
      for (const answer of answers) {
        const { ids: own, from, between = [], steps, label, unclosed, reopens } = answer;
        const ids = Int32Array.from([...prompt, ...own]);
        const at = prompt.length;
        const lossMask = Uint8Array.from(ids, (_, i) => (isLearned(answer, i - at) ? 1 : 0));
        const spans: SegmentSpan[] = [
          { role: 'prompt', start: 0, end: at + from },
          ...[
            ...steps.map(
              ({ begin, end }, step) => ({ role: 'step', step, start: at + begin, end: at + end }) as const,
            ),
            ...between
              .filter(({ begin }) => begin >= from)
              .map(({ begin, end }) => ({ role: 'prompt', start: at + begin, end: at + end }) as const),
          ].sort((one, other) => one.start - other.start),
        ];
        const title = [
          label === null ? 'an answer' : label === 1 ? 'a right answer' : 'a wrong answer',
          ...(unclosed === undefined ? [] : [`never writes ${unclosed}`]),
          ...(reopens === undefined ? [] : [`writes a second ${reopens}`]),
        ].join(', ');
        yield { title, sequence: { ids, lossMask, spans, steps: [] } };
      }
    }
  };
}
