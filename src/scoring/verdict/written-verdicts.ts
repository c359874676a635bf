/** Verdicts after a reason: written by the model, the word read at the end. */

import { type Dataset, indices } from '../../data/dataset.js';
import type { VerdictTemplate, VerdictTokenizer } from '../../data/verdict.js';
import { type GenerateOptions, Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { Sample } from '../../generate/rows/sample-row.js';
import { generateTogether } from '../../generate/together.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { exp } from '../../native/elementary.js';
import { invalid } from '../../native/errors.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { scoreRows } from '../../sequences/forward.js';
import { type BranchedSequence, branchedSequence, type VerdictSequence } from '../../sequences/sequence.js';
import type { JudgedVerdict } from './judged.js';

/** The text that a model wrote after a tail. */
export interface WrittenVerdict {
  /** The reason with its line break, then the word; a reason that did not end has no word after it. */
  readonly tokens: readonly number[];
  /** Log-probs of the tokens at the temperature of sampling. */
  readonly logprobs: readonly number[];
  /** Tokens of the reason with its line break; undefined where it did not end. */
  readonly reason: number | undefined;
}

export interface WritingOptions
  extends Pick<GenerateOptions, 'role' | 'temperature' | 'seed' | 'iteration' | 'promptIds' | 'signal'> {
  /** Hears of each reason. */
  readonly onSample?: GenerateOptions['onSample'];
  readonly tokenizer: Pick<VerdictTokenizer, 'template' | 'tokenizer'>;
  /** Bytes for keys and values. Default: all that fit. */
  readonly cacheBytes?: number | undefined;
}

/**
 * Writes a reason for each prompt, up to a line break, and then a word. Any token may be drawn; a text that has become
 * neither word ends there. Undefined if the signal stopped it.
 */
export async function writeVerdicts(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  options: WritingOptions,
): Promise<WrittenVerdict[] | undefined> {
  if (prompts.length === 0) return [];
  const { positiveIds, negativeIds } = options.tokenizer.template;
  const choices = [positiveIds, negativeIds];
  const longestWord = Math.max(...choices.map(({ length }) => length));
  const writer = reasonWriter(decoder, prompts, options, longestWord);
  try {
    const reasons = await writer.reasons();
    if (options.signal?.aborted) return undefined;
    const ended = reasons.flatMap(({ finishReason }, i) => (finishReason === 'stop' ? [i] : []));
    const words =
      ended.length === 0
        ? []
        : await writer.write(
            ended.map((i) => [...(prompts[i] as number[]), ...(reasons[i] as Sample).tokens]),
            { ...writer.numbered(ended), maxNewTokens: longestWord, choices, choicesOnly: false },
          );
    if (options.signal?.aborted) return undefined;
    const wordsByPrompt = new Map(ended.map((i, k) => [i, words[k] as Sample]));
    return reasons.map((reason, i) => {
      const word = wordsByPrompt.get(i);
      return {
        tokens: [...reason.tokens, ...(word?.tokens ?? [])],
        logprobs: [...reason.temperedLogprobs, ...(word?.temperedLogprobs ?? [])],
        reason: word ? reason.tokens.length : undefined,
      };
    });
  } finally {
    writer.dispose();
  }
}

/** Writes the reasons alone, each with its line break; undefined for one that did not end, and for all if the signal stopped it. */
export async function writeReasons(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  options: WritingOptions,
): Promise<(readonly number[] | undefined)[] | undefined> {
  if (prompts.length === 0) return [];
  const writer = reasonWriter(decoder, prompts, options, 0);
  try {
    const reasons = await writer.reasons();
    if (options.signal?.aborted) return undefined;
    return reasons.map(({ tokens, finishReason }) => (finishReason === 'stop' ? tokens : undefined));
  } finally {
    writer.dispose();
  }
}

/** @param after tokens that are written after a reason */
function reasonWriter(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  { tokenizer: { template, tokenizer }, cacheBytes, promptIds, onSample, ...options }: WritingOptions,
  after: number,
) {
  const shared = { ...options, ignoreEos: true };
  const maxNewTokens = template.rationaleTokens + after;
  const room = roomToGenerate(decoder, prompts, { ...shared, maxNewTokens, cacheBytes });
  const generator = new Generator(decoder, room);
  const write = async (texts: readonly (readonly number[])[], more: GenerateOptions) => {
    const samples = await generateTogether(generator, texts, { ...shared, ...more });
    return samples.map(([sample]) => wholeSample(sample));
  };
  const numbered = (at: readonly number[]) =>
    promptIds ? { promptIds: at.map((i) => promptIds[i] as number) } : {};
  return {
    write,
    numbered,
    reasons: () =>
      write(prompts, {
        ...numbered(prompts.map((_, i) => i)),
        maxNewTokens: template.rationaleTokens,
        stop: ['\n'],
        tokenizer,
        ...(onSample ? { onSample } : {}),
      }),
    dispose: () => generator.dispose(),
  };
}

function wholeSample(sample: Sample | undefined): Sample {
  if (sample && sample.finishReason !== 'error') return sample;
  throw invalid('a logit of a verdict or its reason is NaN or infinite, so there is no token to draw');
}

export interface WrittenJudgeOptions {
  /** Needed where answers have reasons, which the model then writes itself. */
  readonly tokenizer: Pick<VerdictTokenizer, 'template' | 'tailIds' | 'tokenizer'>;
  /** `greedy`: a word is the verdict if each of its tokens is the most likely one. A number: the min probability. */
  readonly threshold: 'greedy' | number;
  readonly microBatchTokens: number;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number) => void) | undefined;
}

/** Solutions whose verdicts are written together. */
const SOLUTIONS_AT_ONCE = 64;

/** Every labelled verdict of the sequences after the most likely reason; unreadable where that does not end, with probability 0.5. */
export async function judgeWrittenVerdicts(
  decoder: Decoder,
  role: Role,
  sequences: Dataset<VerdictSequence>,
  { tokenizer, threshold, microBatchTokens, signal, onProgress }: WrittenJudgeOptions,
): Promise<JudgedVerdict[]> {
  const { template, tailIds, tokenizer: text } = tokenizer;
  const judged: JudgedVerdict[] = [];
  for (let first = 0; first < sequences.length; first += SOLUTIONS_AT_ONCE) {
    const chosen = indices(sequences).slice(first, first + SOLUTIONS_AT_ONCE);
    const asked = chosen.flatMap((solution) => {
      const { solution: of, rowId } = sequences.get(solution);
      return of.verdicts.flatMap(({ step, label, at }) =>
        label === null ? [] : [{ solution, rowId, step, label, at, trunk: of.trunk.ids }],
      );
    });
    const prompts = asked.map(({ trunk, at }) => [...trunk.slice(0, at), ...tailIds]);
    const written = await writeVerdicts(decoder, prompts, {
      tokenizer,
      role,
      temperature: 0,
      ...(signal ? { signal } : {}),
    });
    if (!written) break;
    const readable = asked.flatMap((place, i) => {
      const { tokens, reason } = written[i] as WrittenVerdict;
      return reason === undefined ? [] : [{ place, i, tokens, reason: tokens.slice(0, reason) }];
    });
    const logs = new Map<number, readonly [number, number]>();
    const groups = groupBySize(readable, ({ place: { at } }) => at, microBatchTokens);
    const ofWords = (group: readonly (typeof readable)[number][]) =>
      wordLogprobs(
        decoder,
        role,
        group.map(({ place: { trunk, at, rowId }, reason }) => {
          const answers = [template.positiveIds, template.negativeIds].map((word) => [...reason, ...word]);
          return { ...branchedSequence(trunk, [{ at, answers }], tailIds), rowId };
        }),
        template,
      );
    await overGroups(decoder.device, groups, ofWords, {
      onGroup: (scored, group) =>
        group.forEach(({ i }, k) => void logs.set(i, scored[k] as readonly [number, number])),
    });
    asked.forEach(({ solution, step, label }, i) => {
      const { tokens, reason } = written[i] as WrittenVerdict;
      const [logPositive, logNegative] = logs.get(i) ?? [-Math.LN2, -Math.LN2];
      const probability = 1 / (1 + exp(logNegative - logPositive));
      const word = reason === undefined ? undefined : wordOf(tokens.slice(reason), template);
      const byThreshold = threshold === 'greedy' ? word : probability >= threshold ? 1 : 0;
      judged.push({
        ...{ solution, step, label, logPositive, logNegative, probability },
        ...(reason === undefined
          ? { verdict: undefined, unreadable: true }
          : { verdict: byThreshold, reason: text.decode(tokens.slice(0, reason)).trim() }),
      });
    });
    onProgress?.(Math.min(first + SOLUTIONS_AT_ONCE, sequences.length));
  }
  return judged;
}

/** The word of the tokens; undefined if neither. */
export function wordOf(
  tokens: readonly number[],
  { positiveIds, negativeIds }: Pick<VerdictTemplate, 'positiveIds' | 'negativeIds'>,
): 1 | 0 | undefined {
  const is = (word: readonly number[]) =>
    word.length === tokens.length && word.every((id, i) => tokens[i] === id);
  return is(positiveIds) ? 1 : is(negativeIds) ? 0 : undefined;
}

/** Log-probability of each word after the reason, by sequence. */
async function wordLogprobs(
  decoder: Decoder,
  role: Role,
  sequences: readonly (BranchedSequence & { readonly rowId: number })[],
  { positiveIds, negativeIds }: VerdictTemplate,
): Promise<(readonly [number, number])[]> {
  const lengths = [positiveIds.length, negativeIds.length];
  const items = sequences.map((sequence) => ({
    sequence,
    rows: (sequence.answers[0] ?? []).flatMap(({ rows }, w) => rows.slice(-(lengths[w] as number))),
  }));
  const scores = decoder.device.scope(() => scoreRows(decoder, role, items), 'judge');
  const logprobs = await scores.logprobs.readFloats();
  for (const tensor of Object.values(scores)) tensor.dispose();
  let at = 0;
  const sum = (count: number) => {
    at += count;
    return logprobs.subarray(at - count, at).reduce((total, logprob) => total + logprob, 0);
  };
  return sequences.map(() => [sum(positiveIds.length), sum(negativeIds.length)] as const);
}
