/** Rollouts of StepAMC: the policy's verdict after each step. */
import type { Dataset } from '../../data/dataset.js';
import type { StepLabel } from '../../records/record.js';
import { wordOf } from '../../scoring/verdict/written-verdicts.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { type HiddenStates, hiddenStates, logprobsAt, scalarsAt } from '../../sequences/forward.js';
import type { VerdictSequence } from '../../sequences/sequence.js';
import type {
  Answer,
  CreditedGroup,
  Group,
  RolloutBatch,
  RolloutSource,
} from '../../train/policy/records.js';
import type { PpoConfig } from './config.js';
import { answeredSequence, openQuestions } from './questions.js';
import type { StepAmcRoles } from './roles.js';
import {
  type AnswerSampling,
  type DraftedSolution,
  drawWords,
  hasOneTokenWords,
  writeAnswers,
} from './sampling.js';

/** An answer to the question whether a step is right. */
export interface VerdictAnswer extends Answer {
  /** The word as a verdict; undefined if it is neither. */
  readonly verdict: 1 | 0 | undefined;
  /** Tokens of the reason before the word; 0 where answers have none, absent where it did not end. */
  readonly reason?: number;
}

/** One question: a step of a solution. `item` is the solution's index in the training data. */
export interface Question extends Group<VerdictAnswer> {
  /** Index among the solution's verdicts. */
  readonly place: number;
  /** Index of the judged step within the solution. */
  readonly step: number;
  readonly label: StepLabel;
}

export type CreditedQuestion = CreditedGroup<Question>;

interface RolloutOptions extends VerdictRolloutOptions, RolloutBatch {}

export interface VerdictRolloutOptions {
  readonly roles: Pick<StepAmcRoles, 'decoder' | 'policy' | 'reference' | 'base' | 'valueHead'>;
  readonly template: AnswerSampling['template'];
  readonly tailIds: readonly number[];
  /** Needed where answers have reasons. */
  readonly tokenizer?: AnswerSampling['tokenizer'] | undefined;
  readonly settings: Pick<PpoConfig, 'rollout' | 'steps' | 'temperature' | 'reference'>;
  readonly microBatchTokens: number;
  /** Bytes for keys and values while words of several tokens are written. Default: all that fits. */
  readonly cacheBytes?: number | undefined;
  readonly sequences: Dataset<VerdictSequence>;
  readonly seed: number;
}

/**
 * Answers to every step of the chosen solutions that `settings.steps` names: one sampled from the policy or, with `enumerate`, both words,
 * the positive one first.
 */
export function verdictRollouts(options: VerdictRolloutOptions): RolloutSource<Question> {
  return { rollOut: (batch) => rollOut({ ...options, ...batch }) };
}

async function rollOut(options: RolloutOptions): Promise<Question[] | undefined> {
  const { sequences, items, signal, settings, roles } = options;
  const solutions = new Map(
    items.map((item): [number, DraftedSolution] => {
      const sequence = sequences.get(item);
      return [item, { sequence, drafts: openQuestions(sequence, options) }];
    }),
  );
  const solutionOf = (item: number) => solutions.get(item) as DraftedSolution;
  const sampling = { ...options, ...roles, temperature: settings.temperature };
  const samples = settings.rollout === 'sample';
  const inOnePass = samples && hasOneTokenWords(options.template);
  if (samples && !inOnePass && !(await writeAnswers(items.map(solutionOf), sampling))) return undefined;
  let judged = 0;
  // Written answers are known by now, and may be longer than what is learned from the data.
  const size = (item: number) =>
    inOnePass ? solutionOf(item).sequence.ids.length : asked(solutionOf(item), options).ids.length;
  const answer = async (group: readonly number[]) => {
    const drafted = group.map(solutionOf);
    const states = inOnePass ? await drawWords(drafted, sampling) : undefined;
    return scored(group, drafted, states, options);
  };
  const groups = groupBySize(items, size, options.microBatchTokens);
  const all = await overGroups(roles.decoder.device, groups, answer, {
    signal,
    onGroup(_, group) {
      judged += group.length;
      options.report?.({ unit: 'rollout: scored solution', done: judged, total: items.length });
    },
  });
  return all?.flat();
}

/** The solution with the answers that its questions have. */
function asked({ sequence, drafts }: DraftedSolution, { tailIds }: Pick<RolloutOptions, 'tailIds'>) {
  return answeredSequence(
    sequence,
    drafts.map(({ place, answers }) => ({ place, answers: answers.map(({ tokens }) => tokens) })),
    tailIds,
  );
}

/** The finished answers with the old log-probs and values that training will use, and the reference's log-probs. */
async function scored(
  group: readonly number[],
  solutions: readonly DraftedSolution[],
  drawing: HiddenStates | undefined,
  options: RolloutOptions,
): Promise<Question[]> {
  const { roles, template, settings } = options;
  const { decoder, policy, reference, base, valueHead } = roles;
  const { device } = decoder;
  const sequences = solutions.map((solution) => asked(solution, options));
  const rows = sequences.map(({ answers }) =>
    answers.flatMap((list) => list.flatMap((answer) => answer.rows)),
  );
  if (rows.every((list) => list.length === 0)) return []; // nothing was sampled either
  const { temperature } = settings;
  const own = device.scope(() => {
    const states = drawing ?? hiddenStates(decoder, policy, sequences);
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
    () => logprobsAt(hiddenStates(decoder, against, sequences), rows, { temperature }).logprobs,
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
    (solutions[i] as DraftedSolution).drafts.map(({ place, step, label, answers }) => ({
      item,
      place,
      step,
      label,
      answers: answers.map(({ tokens, sampler, reason }) => {
        const begin = at;
        at += tokens.length;
        return {
          tokens,
          verdict: reason === undefined ? undefined : wordOf(tokens.slice(reason), template),
          ...(reason === undefined ? {} : { reason }),
          oldLogprobs: Array.from(old.subarray(begin, at)),
          refLogprobs: Array.from(refs.subarray(begin, at)),
          values: Array.from(values.subarray(begin, at)),
          samplerLogprobs: sampler,
        };
      }),
    })),
  );
}
