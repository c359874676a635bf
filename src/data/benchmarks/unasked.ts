// Parts of a row that nobody reads: a problem alone goes into the template of prompts, and layouts know the verdicts that they read.
import { isUnmarkedText } from '../../answers/grade.js';
import { plural } from '../../native/shown.js';
import type { StepRecord } from '../../records/record.js';
import { isRow, type Row } from '../columns.js';

/** Columns for chat templates. */
const COLUMNS = ['system', 'tools', 'chat_template_kwargs'] as const;

/** Columns of what models of text do not see or hear. */
const MEDIA = ['image', 'images', 'video', 'videos', 'audio', 'audios'];

/** Names of the columns for chat templates that have a value in the row and none in its records, and of columns of pictures and the like. */
export function unreadColumns(row: Row, records: readonly Partial<StepRecord>[] = []): readonly string[] {
  const isRead = (column: (typeof COLUMNS)[number]) =>
    records.some((record) =>
      column === 'system'
        ? typeof record.prompt !== 'string' && record.prompt?.some(({ role }) => role === 'system')
        : record[column] !== undefined,
    );
  return [
    ...COLUMNS.filter((column) => !isEmpty(row[column]) && !isRead(column)),
    ...MEDIA.filter((column) => !isEmpty(row[column])),
  ];
}

/** Columns of verdicts that no layout reads: a flat export of Argilla has these of each of its questions. */
const ANNOTATION = /\.(?:responses|suggestion)$/;
/** Keys, alone in their objects, of what annotators chose, gave stars and ordered in Label Studio's JSON-MIN and CSV. */
const CHOSEN = ['selected', 'rating', 'ranker'];
const isAnnotated = (value: unknown): boolean =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every((one) => isRow(one) && CHOSEN.includes(Object.keys(one).join()));
/** Columns that may call a solution wrong, in rows of layouts without labels too. */
const MARK =
  /^(?:(?:is_)?(?:correct|right|success|successful|solved|resolved|passed)|correctness|labels?|outcome|verdict|scores?|rewards?)$/i;
const WRONG = /^(?:false|0|no|-|-\d+(?:\.\d+)?|wrong|incorrect|fail|failed|failure)$/i;
/** Those that are no class of a text but its verdict. */
const WRONG_WORD = /^(?:wrong|incorrect)$/i;

/** Columns by which the row of a problem may call its own answer wrong, such as one of a table of a model's answers. */
const ANSWER_MARK = /^(?:(?:is_)?(?:correct|right)|correctness|verdict)$/i;

/** Words of annotators' programs for a row that is not to be used, and columns that have them. */
const DISCARDED = /^(?:discarded|rejected|skipped|cancelled|canceled|ignored?|invalid)$/i;
const STATUS = /^_?(?:record_|response_|annotation_|review_)?status$/i;
/** Columns that say so by true, and by false. */
const UNUSED = /^(?:was_)?(?:discarded|skipped|cancelled|canceled|ignored?|deleted|excluded?)$/i;
const USED = /^(?:is_)?(?:accepted|approved|valid)$/i;
/** Columns with the weight of a row in the loss. */
const WEIGHT = /^(?:(?:sample|row|loss|example)_)?weight$/i;

/**
 * Parts that the layout of that name left unread in a row that gave these records: columns for chat templates, verdicts, weights, and
 * marks of rows that are not to be used.
 */
export const unreadParts = (row: Row, records: readonly StepRecord[], source: string): readonly string[] => [
  ...unreadColumns(row, records),
  ...unreadVerdicts(row, records, source),
  ...discarded(row),
  ...Object.entries(row).flatMap(([name, value]) =>
    typeof value === 'number' && value !== 1 && WEIGHT.test(name) ? [`weight ${name}`] : [],
  ),
];

/** Marks of a row that is not to be used. */
export const discarded = (row: Row): readonly string[] =>
  Object.entries(row).flatMap(([name, value]) => (isDiscarded(name, value) ? [`discarded ${name}`] : []));

const isDiscarded = (name: string, value: unknown): boolean =>
  (value === true && UNUSED.test(name)) ||
  (value === false && USED.test(name)) ||
  (typeof value === 'string' && STATUS.test(name) && DISCARDED.test(value.trim()));

/** Counted as `verdict NAME`: the row's verdicts that none of its records has; of marks those that call something wrong. */
function unreadVerdicts(row: Row, records: readonly StepRecord[], source: string): readonly string[] {
  const isLabelled = ({ outcome, rejected, steps }: StepRecord) =>
    source !== 'problems' &&
    (outcome !== undefined || rejected !== undefined || steps.some(({ label }) => label !== null));
  // A problem without a solution, and a text alone, of a corpus say, have other labels.
  const isSolved = ({ prompt, steps }: StepRecord) => prompt !== '' && steps.length > 0;
  const lacksLabels = records.some((record) => isSolved(record) && !isLabelled(record));
  const isUnlabelled = records.length > 0 && !records.some(isLabelled);
  // Inspect writes `{"match": {"value": "I"}}`.
  const says = (value: unknown, wrong: RegExp): boolean =>
    isRow(value)
      ? Object.entries(value).some(([name, one]) => (name === 'value' && one === 'I') || says(one, wrong))
      : (Array.isArray(value) ? value : [value]).some((one) => wrong.test(`${one}`.trim()));
  const isUnread = ([name, value]: [string, unknown]) =>
    // Those of problems are counted as marks of wrong answers.
    (source !== 'problems' || !ANSWER_MARK.test(name)) &&
    (ANNOTATION.test(name) || isAnnotated(value)
      ? !isEmpty(value)
      : MARK.test(name) &&
        ((lacksLabels && says(value, WRONG)) || (isUnlabelled && says(value, WRONG_WORD))));
  return Object.entries(row)
    .filter(isUnread)
    .map(([name]) => `verdict ${name}`);
}

/** Columns of questions, of which a row may have another one than is read. */
const QUESTIONS = ['problem', 'question', 'prompt', 'instruction'];

/** Names of the columns with another question than the texts that are asked: none of them is in it, or holds it. */
export function otherQuestions(row: Row, asked: readonly string[]): readonly string[] {
  const isAsked = (text: string) =>
    asked.some((own) => own.includes(text.trim()) || (own.trim() !== '' && text.includes(own.trim())));
  return QUESTIONS.filter((column) => {
    const text = row[column];
    return typeof text === 'string' && !isEmpty(text) && asked.some((own) => own !== '') && !isAsked(text);
  });
}

/** Columns that a question may need: its choices, and what it is about. */
const NEEDED = ['choices', 'options', 'passage', 'context', 'table', 'body'];

/**
 * Names of what stands beside the question of a problem's row and not in it, such as a system message or its choices, of an
 * answer that is a text which marks none, and of what calls the answer wrong.
 */
export function besideQuestion(
  row: Row,
  { problem, answer }: { readonly problem: string; readonly answer?: string | undefined },
): readonly string[] {
  const isInside = (value: unknown): boolean =>
    Array.isArray(value)
      ? value.every(isInside)
      : typeof value === 'string' && problem.includes(value.trim());
  return [
    ...beforeQuestion(row),
    ...otherQuestions(row, [problem]),
    ...NEEDED.filter((column) => !isEmpty(row[column]) && !isInside(row[column])),
    ...(answer !== undefined && isUnmarkedText(answer) ? [SENTENCES] : []),
    ...Object.entries(row).flatMap(([name, value]) =>
      ANSWER_MARK.test(name) && WRONG.test(`${value}`.trim()) ? [`wrong ${name}`] : [],
    ),
  ];
}

/** Names of what stands before the question of a problem's row, such as a system message. */
function beforeQuestion(row: Row): readonly string[] {
  const messages = Array.isArray(row.prompt) ? row.prompt.filter((message) => isRow(message)) : [];
  const roles = messages.map(({ role, from }) => (role ?? from) as unknown);
  const question = roles.findLastIndex((role) => role === 'user' || role === 'human');
  const before = roles.slice(0, Math.max(0, question));
  const isSystem = (role: unknown) => role === 'system' || role === 'developer';
  return [
    ...(before.some(isSystem) ? ['a system message'] : []),
    ...(before.every(isSystem) ? [] : ['earlier turns']),
  ];
}

/** The part under which rows are counted whose expected answer is a text in sentences. */
const SENTENCES = 'answer in sentences';

/** The sentence on expected answers that are texts in sentences; none of 0. */
export const unmarkedWarning = (answers: number): string[] =>
  answers > 0
    ? [
        `the expected answers of ${plural(answers, 'row')} are sentences that mark no answer (####, \\boxed or "answer is"), ` +
          'and are compared word for word, so that hardly a solution is right; name the column of the final answer',
      ]
    : [];

/** The part under which rows are counted whose `label`, an index in their layout, may say whether the solution is right. */
export const DOUBTED_INDEX = 'label of 0 or 1';

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  if (typeof value === 'string') return /^\s*(?:\{\s*\}|\[\s*\]|null)?\s*$/.test(value);
  return typeof value === 'object' && Object.keys(value).length === 0;
}

const NAMED_KINDS = ['verdict', 'null', 'weight', 'discarded', 'wrong'] as const;

/** Sentences on such parts, on verdicts, weights, discarded rows, nulls of tables and doubtful labels, from the counts of rows by part. */
export function unaskedWarning(counts: ReadonlyMap<string, number> | undefined): string[] {
  const kinds = { verdict: '', null: '', weight: '', discarded: '', wrong: '', part: '' };
  for (const [part, rows] of counts ?? []) {
    if (part === DOUBTED_INDEX || part === SENTENCES) continue;
    const kind = NAMED_KINDS.find((one) => part.startsWith(`${one} `)) ?? 'part';
    const name = kind === 'part' || kind === 'null' ? part : part.slice(kind.length + 1);
    kinds[kind] += `${kinds[kind] && ', '}${name} (${rows})`;
  }
  const doubted = counts?.get(DOUBTED_INDEX);
  return [
    ...(doubted
      ? [
          `in all ${doubted} rows label is 0 or 1, which counts as the index of the first wrong step, so that no solution is right; ` +
            'if 1 calls a solution right, write it as outcome of records (docs/reference/data.md)',
        ]
      : []),
    ...unmarkedWarning(counts?.get(SENTENCES) ?? 0),
    ...(kinds.part
      ? [
          `rows have ${kinds.part}, which is not read: prompts are made of the problem or prompt of a row alone`,
        ]
      : []),
    ...(kinds.verdict
      ? [
          `rows have verdicts in ${kinds.verdict}, which are not read, so that wrong solutions may count as right ones; ` +
            'write them as labels (docs/reference/data.md has the layouts) or leave such rows out',
        ]
      : []),
    ...(kinds.wrong
      ? [
          `rows call their answer wrong in ${kinds.wrong}, and it is taken as the expected one all the same; ` +
            'name the column of the right answer, or leave such rows out',
        ]
      : []),
    ...(kinds.weight
      ? [`rows have a weight other than 1 in ${kinds.weight}, which is not read: all rows count alike`]
      : []),
    ...(kinds.discarded
      ? [
          `rows say in ${kinds.discarded} that they are not to be used, and are read all the same; leave them out of the file`,
        ]
      : []),
    ...(kinds.null
      ? [`rows have ${kinds.null}, as tables of one type write missing ones; they are left out`]
      : []),
  ];
}
