/** Rollouts of StepAMC: the policy's verdict after each step. */
import type { Dataset } from '../../data/dataset.js';
import type { VerdictTemplate } from '../../data/verdict.js';
import { StepTrainError } from '../../native/errors.js';
import { headLogits } from '../../ops/head.js';
import { gatherRows } from '../../ops/memory.js';
import { keyOfSeed, philox4x32 } from '../../random/philox.js';
import { groupBySize } from '../../sequences/batching.js';
import { type HiddenStates, hiddenStates, logprobsAt, scalarsAt } from '../../sequences/forward.js';
import { type BranchedSequence, branchedSequence, type VerdictSequence } from '../../sequences/sequence.js';
import type {
  Answer,
  CreditedGroup,
  Group,
  RolloutBatch,
  RolloutSource,
} from '../../train/policy/records.js';
import type { PpoConfig } from './config.js';
import type { StepAmcRoles } from './roles.js';

/** An answer to the question whether a step is right. */
export interface VerdictAnswer extends Answer {
  /** Which word it is; undefined if neither. */
  readonly verdict: 1 | 0 | undefined;
}

/** One question: a labelled step of a solution. `item` is the solution's index in the training data. */
export interface Question extends Group<VerdictAnswer> {
  /** Index among the solution's verdicts. */
  readonly place: number;
  /** Index of the judged step within the solution. */
  readonly step: number;
  readonly label: 1 | 0;
}

export type CreditedQuestion = CreditedGroup<Question>;

interface RolloutOptions extends VerdictRolloutOptions, RolloutBatch {}

export interface VerdictRolloutOptions {
  readonly roles: Pick<StepAmcRoles, 'decoder' | 'policy' | 'reference' | 'base' | 'valueHead'>;
  readonly template: Pick<VerdictTemplate, 'positiveIds' | 'negativeIds'>;
  readonly tailIds: readonly number[];
  readonly settings: Pick<PpoConfig, 'rollout' | 'temperature' | 'reference'>;
  readonly microBatchTokens: number;
  readonly sequences: Dataset<VerdictSequence>;
  readonly seed: number;
}

/** Max bytes of logits while sampling. */
const LOGIT_BYTES = 64 << 20;

/** Domain of the keys of sampling. */
const SAMPLING = 0x73616d70;

/**
 * Answers to every labelled step of the chosen solutions: one sampled from the policy or, with `enumerate`, both words,
 * the positive one first.
 */
export function verdictRollouts(options: VerdictRolloutOptions): RolloutSource<Question> {
  return { rollOut: (batch) => rollOut({ ...options, ...batch }) };
}

async function rollOut(options: RolloutOptions): Promise<Question[] | undefined> {
  const { sequences } = options;
  const questions: Question[] = [];
  const size = (i: number) => sequences.get(i).ids.length;
  for (const group of groupBySize(options.items, size, options.microBatchTokens)) {
    if (options.signal.aborted) return undefined;
    const drawn = group.map((item) => openQuestions(sequences, item, options));
    const states =
      options.settings.rollout === 'sample'
        ? await sampleAnswers(sequences, group, drawn, options)
        : undefined;
    questions.push(...(await scored(sequences, group, drawn, states, options)));
  }
  return questions;
}

interface Draft {
  readonly place: number;
  readonly step: number;
  readonly label: 1 | 0;
  readonly answers: { tokens: number[]; sampler: number[] }[];
}

function openQuestions(
  sequences: Dataset<VerdictSequence>,
  item: number,
  { template, settings }: RolloutOptions,
): Draft[] {
  const { verdicts } = sequences.get(item);
  return verdicts.flatMap(({ label, step }, place) => {
    if (label === null) return [];
    const words = settings.rollout === 'enumerate' ? [template.positiveIds, template.negativeIds] : [[]];
    return [{ place, step, label, answers: words.map((word) => ({ tokens: [...word], sampler: [] })) }];
  });
}

interface AnsweredSequence extends BranchedSequence {
  readonly rowId: number;
}

/** The sequence that asks each question and holds its answers. */
export function answeredSequence(
  { solution, rowId }: VerdictSequence,
  questions: readonly { readonly place: number; readonly answers: readonly (readonly number[])[] }[],
  tailIds: readonly number[],
): AnsweredSequence {
  const places = questions.map(({ place, answers }) => ({
    at: (solution.verdicts[place] as { at: number }).at,
    answers,
  }));
  return { ...branchedSequence(solution.trunk.ids, places, tailIds), rowId };
}

/**
 * Samples token by token until each answer is a word or can no longer become one. If one token was enough for all, the
 * forward that sampled it also scores it, and its states are returned.
 */
async function sampleAnswers(
  sequences: Dataset<VerdictSequence>,
  group: readonly number[],
  drafts: readonly (readonly Draft[])[],
  options: RolloutOptions,
): Promise<HiddenStates | undefined> {
  const { roles, template, tailIds, settings } = options;
  const { decoder, policy } = roles;
  const { device } = decoder;
  const rowsAtOnce = Math.max(1, Math.floor(LOGIT_BYTES / (4 * decoder.config.vocabSize)));
  let drawing: HiddenStates | undefined;
  for (let round = 0; ; round++) {
    const open = group.map((_, i) =>
      (drafts[i] as Draft[]).filter(({ answers: [answer] }) => isOpen(answer?.tokens ?? [], template)),
    );
    if (open.every((list) => list.length === 0)) return drawing;
    drawing?.hidden.dispose();
    drawing = undefined;
    // Each branch ends with the tokens sampled so far and predicts the next one.
    const asked = group.map((item, i) =>
      answeredSequence(
        sequences.get(item),
        (open[i] as Draft[]).map(({ place, answers: [answer] }) => ({
          place,
          answers: [[...(answer?.tokens ?? []), 0]],
        })),
        tailIds,
      ),
    );
    const questions = open.flatMap((list, i) =>
      list.map((draft, j) => {
        const rows = asked[i]?.answers[j]?.[0]?.rows;
        return { draft, sequence: i, row: rows?.at(-1)?.row as number };
      }),
    );
    const states = device.scope(() => hiddenStates(decoder, policy, asked), 'rollout');
    for (let first = 0; first < questions.length; first += rowsAtOnce) {
      const slice = questions.slice(first, first + rowsAtOnce);
      const keys = Int32Array.from(
        slice.flatMap(({ draft, sequence }) =>
          samplingKey(options, asked[sequence] as AnsweredSequence, draft),
        ),
      );
      const outputs = device.scope(() => {
        const rows = slice.map(({ sequence, row }) => (states.offsets[sequence] as number) + row);
        const hidden = gatherRows(states.hidden, device.tensor(Int32Array.from(rows)));
        const logits = headLogits(hidden, decoder.head(policy));
        const { tokens, tempered_logprobs, status } = device.ops.sample({
          logits,
          keys: device.tensor(keys, [slice.length, 4]),
          temperature: device.tensor(new Float32Array(slice.length).fill(settings.temperature)),
          tempered_logprobs: true,
        });
        return { tokens, logprobs: tempered_logprobs, status };
      });
      const [tokens, logprobs, status] = await Promise.all([
        outputs.tokens.read(),
        outputs.logprobs.readFloats(),
        outputs.status.read(),
      ]);
      for (const tensor of Object.values(outputs)) tensor.dispose();
      if (status.some((code) => code !== 0))
        throw new StepTrainError(
          'E_RANGE',
          "rollout: a logit of the policy's answer is NaN or infinite, so there is no token to draw",
        );
      slice.forEach(({ draft }, i) => {
        draft.answers[0]?.tokens.push(tokens[i] as number);
        draft.answers[0]?.sampler.push(logprobs[i] as number);
      });
    }
    if (round === 0) drawing = states;
    else states.hidden.dispose();
  }
}

function isOpen(tokens: readonly number[], template: RolloutOptions['template']): boolean {
  return [template.positiveIds, template.negativeIds].some(
    (word) => tokens.length < word.length && tokens.every((token, i) => token === word[i]),
  );
}

/** Depends on seed, iteration, solution, verdict and token alone, never on the rest of the batch. */
function samplingKey(
  { seed, iteration }: RolloutOptions,
  { rowId }: AnsweredSequence,
  { place, answers: [answer] }: Draft,
): number[] {
  const [a, b] = philox4x32([iteration, rowId, place, SAMPLING], keyOfSeed(seed));
  return [a, b, answer?.tokens.length ?? 0, 0];
}

/** The finished answers with the old log-probs and values that training will use, and the reference's log-probs. */
async function scored(
  sequences: Dataset<VerdictSequence>,
  group: readonly number[],
  drafts: readonly (readonly Draft[])[],
  drawing: HiddenStates | undefined,
  { roles, template, tailIds, settings }: RolloutOptions,
): Promise<Question[]> {
  const { decoder, policy, reference, base, valueHead } = roles;
  const { device } = decoder;
  const asked = group.map((item, i) =>
    answeredSequence(
      sequences.get(item),
      (drafts[i] as Draft[]).map(({ place, answers }) => ({
        place,
        answers: answers.map(({ tokens }) => tokens),
      })),
      tailIds,
    ),
  );
  const rows = asked.map(({ answers }) => answers.flatMap((list) => list.flatMap((answer) => answer.rows)));
  if (rows.every((list) => list.length === 0)) return []; // nothing was sampled either
  const { temperature } = settings;
  const own = device.scope(() => {
    const states = drawing ?? hiddenStates(decoder, policy, asked);
    const { logprobs } = logprobsAt(states, rows, { temperature });
    const values = scalarsAt(
      states,
      valueHead,
      rows.map((list) => list.map(({ row }) => row)),
    );
    return { logprobs, values };
  }, 'rollout');
  drawing?.hidden.dispose();
  const against = settings.reference === 'base' ? base : reference;
  const ref = device.scope(
    () => logprobsAt(hiddenStates(decoder, against, asked), rows, { temperature }).logprobs,
    'reference',
  );
  const [old, values, refs] = await Promise.all([
    own.logprobs.readFloats(),
    own.values.readFloats(),
    ref.readFloats(),
  ]);
  for (const tensor of [own.logprobs, own.values, ref]) tensor.dispose();
  let at = 0;
  return group.flatMap((item, i) =>
    (drafts[i] as Draft[]).map(({ place, step, label, answers }) => ({
      item,
      place,
      step,
      label,
      answers: answers.map(({ tokens, sampler }) => {
        const begin = at;
        at += tokens.length;
        return {
          tokens,
          verdict: wordOf(tokens, template),
          oldLogprobs: Array.from(old.subarray(begin, at)),
          refLogprobs: Array.from(refs.subarray(begin, at)),
          values: Array.from(values.subarray(begin, at)),
          samplerLogprobs: sampler,
        };
      }),
    })),
  );
}

function wordOf(tokens: readonly number[], template: RolloutOptions['template']): 1 | 0 | undefined {
  const is = (word: readonly number[]) =>
    word.length === tokens.length && word.every((id, i) => tokens[i] === id);
  return is(template.positiveIds) ? 1 : is(template.negativeIds) ? 0 : undefined;
}
