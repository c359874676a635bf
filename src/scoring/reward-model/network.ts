/** The logits of a reward model, of right and of wrong at each scored row, for any head. */
import { className } from '../../architectures/heads.js';
import { isBidirectional } from '../../architectures/table.js';
import type { VerdictTokenizer } from '../../data/verdict.js';
import type { Decoder, LinearHead, Role } from '../../models/decoder.js';
import { headOutputs, roleHead } from '../../models/heads.js';
import { exp, log1p } from '../../native/elementary.js';
import { StepTrainError } from '../../native/errors.js';
import { gatherRows, reshape } from '../../ops/memory.js';
import type { Tensor } from '../../runtime/tensor.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { type HiddenStates, hiddenStates, logitsAt } from '../../sequences/forward.js';
import type { NeutralScore, SettingsOf } from '../settings.js';
import { CLASSES, type RewardItem, type ScoredRow } from './items.js';

/** f32 [R] each; σ(positive − negative) is the probability of right. */
export interface RightAndWrong {
  readonly positive: Tensor;
  readonly negative: Tensor;
}

/** Logits of a head with a class for neutral steps: f32 [R, 3], in the order of `CLASSES`. */
export interface LogitsByClass {
  readonly classes: Tensor;
}

export interface RewardNetwork {
  readonly decoder: Decoder;
  /** The role without dropout; training adds it. */
  readonly role: Role;
  readonly head: SettingsOf<'reward_model'>['head'];
  /** Treatment of the neutral class, for a head that has one. */
  readonly neutral_score: NeutralScore;
  /** The tokens of both words, for the head `verdict`. */
  readonly words: readonly [positive: number, negative: number];
}

/**
 * @throws StepTrainError for words of several tokens, whose probabilities are no logits of one row; for an input that
 *   the trunk cannot read
 */
export function rewardNetwork(
  trained: Pick<RewardNetwork, 'decoder' | 'role'>,
  {
    head,
    input,
    neutral_score = 'positive',
  }: Pick<SettingsOf<'reward_model'>, 'head' | 'input'> & {
    readonly neutral_score?: NeutralScore | undefined;
  },
  { template: { positive, negative, positiveIds, negativeIds } }: Pick<VerdictTokenizer, 'template'>,
): RewardNetwork {
  if (head === 'verdict' && (positiveIds.length > 1 || negativeIds.length > 1))
    throw new StepTrainError(
      'E_CONFIG',
      `reward_model.head is verdict, and ${JSON.stringify(positive)} and ${JSON.stringify(negative)} are not one token each; ` +
        'choose other words in prompt.pos_word and prompt.neg_word, or another head',
    );
  if (input === 'whole' && isBidirectional(trained.decoder.config))
    throw new StepTrainError(
      'E_CONFIG',
      `reward_model.input is whole, and every token of a ${className(trained.decoder.config)} sees all others, so that a step would be judged ` +
        'by those after it; set reward_model.input: prefixes',
    );
  return { ...trained, head, neutral_score, words: [positiveIds[0] as number, negativeIds[0] as number] };
}

/** Logits at all rows of a group of items, in order. Differentiable. */
export function rewardLogits(
  { decoder, role, head, words }: RewardNetwork,
  group: readonly RewardItem[],
  dropout?: Role['dropout'],
): RightAndWrong | LogitsByClass {
  const { device } = decoder;
  const states = hiddenStates(
    decoder,
    { ...role, dropout },
    group.flatMap(({ sequences }) => sequences),
  );
  const own = head === 'verdict' ? undefined : roleHead(decoder, role);
  const rows = placedRows(group, states, own);
  if (head === 'verdict') {
    const at = (token: number): Tensor =>
      logitsAt({ ...states, offsets: [0] }, [rows.map(({ row }) => ({ row, token }))]);
    return { positive: at(words[0]), negative: at(words[1]) };
  }
  if (!own) throw new RangeError('the role has no score head');
  const index = (values: readonly number[]) => device.tensor(Int32Array.from(values));
  const outputs = headOutputs(states.hidden, own, index(rows.map(({ row }) => row)));
  const [count, width] = outputs.shape as [number, number];
  if (width === CLASSES.length) return { classes: outputs };
  const flat = reshape(outputs, [count * width, 1]);
  const column = (of: (what: ScoredRow['what']) => number) =>
    reshape(gatherRows(flat, index(rows.map(({ what }, i) => i * width + of(what)))), [count]);
  if (head === 'classes') return { positive: column(() => 1), negative: column(() => 0) };
  // One output for the scored unit, or that of the steps and then that of the outcome.
  return {
    positive: column((what) => (width === 1 || what === 'step' ? 0 : 1)),
    negative: device.tensor(new Float32Array(count)),
  };
}

/** The rows of a group, counted from the beginning of its batch. A head that reads the first token finds there what its sequence ends with. */
function placedRows(
  group: readonly RewardItem[],
  { offsets }: HiddenStates,
  head: Pick<LinearHead, 'reads'> | undefined,
) {
  let first = 0;
  return group.flatMap(({ sequences, rows }) => {
    const own = rows.map(({ sequence, row, what }) => ({
      row: (offsets[first + sequence] as number) + (head?.reads === 'first' ? 0 : row),
      what,
    }));
    first += sequences.length;
    return own;
  });
}

export interface ScoreOptions {
  readonly microBatchTokens: number;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (done: number) => void;
}

/** The log-odds of right, by item and row; undefined if the signal stopped it. */
export async function scoreItems(
  network: RewardNetwork,
  items: Iterable<RewardItem>,
  { microBatchTokens, signal, onProgress }: ScoreOptions,
): Promise<number[][] | undefined> {
  let done = 0;
  const groups = groupBySize(items, ({ tokens }) => tokens, microBatchTokens);
  const all = await overGroups(network.decoder.device, groups, (group) => scoreGroup(network, group), {
    signal,
    onGroup(_, group) {
      done += group.length;
      onProgress?.(done);
    },
  });
  return all?.flat();
}

async function scoreGroup(network: RewardNetwork, group: readonly RewardItem[]): Promise<number[][]> {
  if (group.every(({ rows }) => rows.length === 0)) return group.map(() => []);
  const logits = network.decoder.device.scope(() => rewardLogits(network, group), 'reward model');
  const scores = 'classes' in logits ? await byClass(logits, network.neutral_score) : await byTwo(logits);
  let at = 0;
  return group.map(({ rows }) => rows.map(() => scores[at++] as number));
}

async function byTwo({ positive, negative }: RightAndWrong): Promise<number[]> {
  const [right, wrong] = await Promise.all([positive.readFloats(), negative.readFloats()]);
  positive.dispose();
  negative.dispose();
  return Array.from(right, (z, i) => z - (wrong[i] as number));
}

async function byClass({ classes }: LogitsByClass, rule: NeutralScore): Promise<number[]> {
  const logits = await classes.readFloats();
  classes.dispose();
  return Array.from({ length: logits.length / CLASSES.length }, (_, i) => {
    const [wrong, right, neutral] = logits.subarray(i * CLASSES.length);
    return logOddsOfRight(wrong as number, right as number, neutral as number, rule);
  });
}

/** Log-odds from the logits of three classes; the neutral one counts as right, as wrong, or not at all. */
export function logOddsOfRight(wrong: number, right: number, neutral: number, rule: NeutralScore): number {
  if (rule === 'positive') return logSum(right, neutral) - wrong;
  return right - (rule === 'negative' ? logSum(wrong, neutral) : wrong);
}

/** log(eˣ + eʸ). */
function logSum(x: number, y: number): number {
  return Math.max(x, y) + log1p(exp(-Math.abs(x - y)));
}
