/** The reasons that the reward network reads between a step and its verdict, where answers have reasons. */
import type { Part } from '../../../data/split.js';
import { grouped } from '../../../native/grouped.js';
import { keyOfSeed, philox4x32 } from '../../../random/philox.js';
import { rewardSequence, type StepReasons } from '../../../scoring/reward-network/scores.js';
import { writeReasons } from '../../../scoring/verdict/written-verdicts.js';
import type { VerdictSequence } from '../../../sequences/sequence.js';
import type { Question } from '../rollout.js';
import type { StepAmcRun } from '../run.js';
import { type RewardUnit, reasonedUnit } from './pairs.js';

/** Domain of the keys of sampling. */
const REASONS = 0x66726e72;

/** Solutions whose reasons are written together. */
const SOLUTIONS_AT_ONCE = 128;

/** Whether the network reads a reason before each verdict. */
export function readsReasons({
  config: { reward_network: network },
  data: { tokenizer },
}: StepAmcRun): boolean {
  return network.pair_mode === 'label' && tokenizer.template.rationaleTokens > 0;
}

interface Writing {
  /** 0 for the most likely reason. */
  readonly temperature: number;
  /** Number of the draw. */
  readonly iteration?: number;
  readonly signal?: AbortSignal;
}

/** Reasons of the warm-up for every judged step of the solutions; undefined if the signal stopped it. */
export async function reasonsOfWarmUp(
  { config: { run }, data: { tokenizer }, roles, cacheBytes }: StepAmcRun,
  sequences: readonly VerdictSequence[],
  { temperature, iteration = 0, signal }: Writing,
): Promise<StepReasons[] | undefined> {
  const written: StepReasons[] = [];
  for (let first = 0; first < sequences.length; first += SOLUTIONS_AT_ONCE) {
    const chosen = sequences.slice(first, first + SOLUTIONS_AT_ONCE);
    const asked = chosen.flatMap(({ solution: { trunk, verdicts }, rowId }) =>
      verdicts.map(({ at }, place) => ({
        prompt: [...trunk.ids.slice(0, at), ...tokenizer.tailIds],
        id: philox4x32([rowId, place, 0, REASONS], keyOfSeed(run.seed))[0],
      })),
    );
    const reasons = await writeReasons(
      roles.decoder,
      asked.map(({ prompt }) => prompt),
      {
        ...{ tokenizer, role: roles.reference, temperature, iteration, cacheBytes, seed: run.seed },
        promptIds: asked.map(({ id }) => id),
        ...(signal ? { signal } : {}),
      },
    );
    if (!reasons) return undefined;
    let at = 0;
    for (const { solution } of chosen) {
      written.push(reasons.slice(at, at + solution.verdicts.length));
      at += solution.verdicts.length;
    }
  }
  return written;
}

/** The pairs of solutions with a reason after each judged step. */
export function reasonedUnits(
  { data: { tokenizer } }: StepAmcRun,
  sequences: readonly VerdictSequence[],
  reasons: readonly StepReasons[],
): RewardUnit[] {
  return sequences.map((sequence, i) => {
    const own = reasons[i] as StepReasons;
    return reasonedUnit(sequence, rewardSequence(sequence, tokenizer, 'label', own), own);
  });
}

/** The units of the reward network with the reasons that the policy wrote before its own verdicts. */
export function unitsOfQuestions(open: StepAmcRun) {
  const { train } = open.data.sequences;
  return (items: readonly number[], questions: readonly Question[]): RewardUnit[] => {
    const byItem = grouped(questions, ({ item }) => item);
    const sequences = items.map((item) => train.get(item));
    const reasons = items.map((item, i): StepReasons => {
      const own = new Map(
        byItem.get(item)?.map(({ place, answers: [answer] }) => {
          const ended = answer?.reason !== undefined;
          return [place, ended ? answer.tokens.slice(0, answer.reason) : undefined] as const;
        }),
      );
      return (sequences[i] as VerdictSequence).verdicts.map((_, place) => own.get(place));
    });
    return reasonedUnits(open, sequences, reasons);
  };
}

/** The reasons that were written, by the roles of a run. */
const heldOut = new WeakMap<object, Map<Part, StepReasons[]>>();

/**
 * The most likely reasons of the warm-up for a held-out part: written once, since the warm-up does not change. Undefined if the signal
 * stopped it.
 */
export async function heldOutReasons(
  open: StepAmcRun,
  part: 'validation' | 'test',
  signal?: AbortSignal,
): Promise<StepReasons[] | undefined> {
  const known = heldOut.get(open.roles) ?? new Map<Part, StepReasons[]>();
  heldOut.set(open.roles, known);
  const sequences = Array.from(open.data.sequences[part]);
  const found =
    known.get(part) ??
    (await reasonsOfWarmUp(open, sequences, { temperature: 0, ...(signal ? { signal } : {}) }));
  if (found) known.set(part, found);
  return found;
}
