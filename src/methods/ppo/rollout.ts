/** Rollouts: solutions sampled from the policy, scored by policy, critic and reference. */
import type { Role } from '../../models/decoder.js';
import type { Tensor } from '../../runtime/tensor.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { hiddenStates, logprobsAt, scalarsAt } from '../../sequences/forward.js';
import type {
  Answer,
  CreditedGroup,
  Group,
  RolloutBatch,
  RolloutSource,
} from '../../train/policy/records.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import type {
  SampledSolution,
  SolutionSource,
  SolutionTurns,
} from '../../train/solutions/solution-source.js';
import type { PpoRoles } from './roles.js';
import { type AnsweredPrompt, answeredPrompts } from './sequences.js';
import type { PpoSettings } from './settings.js';

/** A sampled solution. */
export interface SolutionAnswer extends Answer {
  readonly text: string;
  /** Whether it was cut off. */
  readonly truncated: boolean;
  /** The turns of an episode, whose `tokens` are those that were drawn. */
  readonly turns?: SolutionTurns;
  /** Value of the state after its last token, with a critic. */
  readonly endValue?: number;
}

/** The solutions of a problem; `item` is the problem's index. */
export type SolutionGroup = Group<SolutionAnswer>;
export type CreditedSolutions = CreditedGroup<SolutionGroup>;

export interface SolutionRolloutOptions {
  readonly roles: Pick<PpoRoles, 'decoder' | 'policy' | 'reference' | 'critic'>;
  readonly source: SolutionSource;
  /** Solutions that it gives of each problem. */
  readonly n: number;
  /** Prompt of a problem. */
  readonly promptOf: (item: number) => SolutionPrompt;
  readonly settings: Pick<PpoSettings, 'branches'>;
  /** The update scores the answers by the policy: `oldLogprobs` are left empty, and there is no critic. */
  readonly scoredLater?: boolean;
  readonly temperature: number;
  readonly microBatchTokens: number;
}

export function solutionRollouts(options: SolutionRolloutOptions): RolloutSource<SolutionGroup> {
  return {
    async rollOut({ items, iteration, ahead, signal, report }: RolloutBatch) {
      const prompts = items.map(options.promptOf);
      const total = options.n * prompts.length;
      let [done, tokens] = [0, 0];
      const samples = await options.source.sample(prompts, {
        iteration,
        signal,
        ...(ahead
          ? {
              ahead: ahead.map((next) => ({
                iteration: next.iteration,
                prompts: next.items.map(options.promptOf),
              })),
            }
          : {}),
        onSample(_prompt, _sample, ended) {
          tokens += ended.tokens.length;
          report?.({ unit: 'rollout: solution', done: ++done, total, tokens });
        },
      });
      if (!samples) return undefined;
      const whole = samples.map(withoutFailed);
      const groups = await scored(items, whole, { signal, report }, options);
      // A group that failures have left with one episode has nothing to compare.
      return groups?.filter(({ answers }) => answers.length >= Math.min(2, options.n));
    },
    dispose: () => options.source.dispose?.(),
  };
}

/** Episodes whose environment failed teach nothing, and are compared with nothing; nor one in which nothing was drawn. */
const withoutFailed = (samples: readonly SampledSolution[]) =>
  samples.filter(({ turns }) => !turns || (turns.failure === undefined && turns.ends.length > 0));

interface Scores {
  readonly old: Float32Array | undefined;
  readonly ref: Float32Array | undefined;
  /** Values of each token's state, then of the ends. */
  readonly values: Float32Array | undefined;
}

async function scored(
  items: readonly number[],
  samples: readonly (readonly SampledSolution[])[],
  { signal, report }: Pick<RolloutBatch, 'signal' | 'report'>,
  options: SolutionRolloutOptions,
): Promise<SolutionGroup[] | undefined> {
  const { promptOf, settings, microBatchTokens } = options;
  const sequences = items.map((item, i) =>
    answeredPrompts(promptOf(item).ids, item, samples[i] ?? [], {
      budget: microBatchTokens,
      branches: settings.branches,
    }),
  );
  const answers: Pick<SolutionAnswer, 'oldLogprobs' | 'refLogprobs' | 'values' | 'endValue'>[] = [];
  const take = (scores: Scores, part: readonly AnsweredPrompt[]) => {
    const lengths = part.flatMap(({ solutions }) => solutions.map(({ rows }) => rows.length));
    const ends = lengths.reduce((sum, length) => sum + length, 0);
    let at = 0;
    lengths.forEach((length, i) => {
      const cut = (values?: Float32Array) => Array.from(values?.subarray(at, at + length) ?? []);
      answers.push({
        oldLogprobs: cut(scores.old),
        refLogprobs: cut(scores.ref),
        values: cut(scores.values),
        ...(scores.values ? { endValue: scores.values[ends + i] as number } : {}),
      });
      at += length;
    });
    report?.({ unit: 'rollout: scored solution', done: answers.length, total: samples.flat().length });
  };
  const parts = groupBySize(sequences.flat(), ({ ids }) => ids.length, microBatchTokens);
  const { device } = options.roles.decoder;
  const all = await overGroups(device, parts, (part) => scoresOf(part, options), { signal, onGroup: take });
  if (!all) return undefined;
  let next = 0;
  return items.map((item, i) => ({
    item,
    answers: (samples[i] ?? []).map(({ tokens, logprobs, text, finishReason, turns, server, staleness }) => ({
      ...(answers[next++] as (typeof answers)[number]),
      tokens,
      samplerLogprobs: logprobs,
      text,
      truncated: finishReason === 'length',
      ...(turns === undefined ? {} : { turns }),
      ...(server === undefined ? {} : { server }),
      ...(staleness === undefined ? {} : { staleness }),
    })),
  }));
}

async function scoresOf(
  part: readonly AnsweredPrompt[],
  { roles, temperature, scoredLater = false }: SolutionRolloutOptions,
): Promise<Scores> {
  const { decoder, policy, reference, critic } = roles;
  const { device } = decoder;
  const rows = part.map(({ solutions }) => solutions.flatMap((solution) => solution.rows));
  const made: Partial<Record<'old' | 'values' | 'ends', Tensor>> = device.scope(() => {
    if (scoredLater) return {};
    const states = hiddenStates(decoder, policy, part);
    const old = logprobsAt(states, rows, { temperature }).logprobs;
    if (!critic) return { old };
    const seen = critic.own === undefined ? states : hiddenStates(critic.own.decoder, critic.own.role, part);
    const places = rows.map((list) => list.map(({ row }) => row));
    const ends = part.map(({ solutions }) => solutions.map(({ end }) => end));
    return { old, values: scalarsAt(seen, critic.head, places), ends: scalarsAt(seen, critic.head, ends) };
  }, 'rollout');
  const ref =
    reference && device.scope(() => referenceLogprobs(reference, part, rows, temperature), 'reference');
  const tensors = [made.old, ref, made.values, made.ends];
  const [old, refs, values, ends] = await Promise.all(tensors.map((tensor) => tensor?.readFloats()));
  for (const tensor of tensors) tensor?.dispose();
  return {
    old,
    ref: refs,
    values: values && Float32Array.from([...values, ...(ends as Float32Array)]),
  };
}

function referenceLogprobs(
  { decoder, role }: NonNullable<PpoRoles['reference']> & { readonly role: Role },
  part: readonly AnsweredPrompt[],
  rows: Parameters<typeof logprobsAt>[1],
  temperature: number,
) {
  return logprobsAt(hiddenStates(decoder, role, part), rows, { temperature }).logprobs;
}
