/** Verdicts after a reason: written by the model, the word read at the end. */

import { type Dataset, indices } from '../../data/dataset.js';
import type { VerdictTemplate, VerdictTokenizer } from '../../data/verdict.js';
import { type GenerateOptions, Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { Sample } from '../../generate/rows/sample-row.js';
import { generateTogether } from '../../generate/together.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { exp, log } from '../../native/elementary.js';
import { ending } from '../../native/ending.js';
import { invalid } from '../../native/errors.js';
import { textHash } from '../../random/text-hash.js';
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
  using writer = ending(reasonWriter(decoder, prompts, options, longestWord));
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
}

/** Writes the reasons alone, each with its line break; undefined for one that did not end, and for all if the signal stopped it. */
export async function writeReasons(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  options: WritingOptions,
): Promise<(readonly number[] | undefined)[] | undefined> {
  if (prompts.length === 0) return [];
  using writer = ending(reasonWriter(decoder, prompts, options, 0));
  const reasons = await writer.reasons();
  if (options.signal?.aborted) return undefined;
  return reasons.map(({ tokens, finishReason }) => (finishReason === 'stop' ? tokens : undefined));
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
  /** Reasons for each verdict. One is the most likely one; several are drawn at temperature 0.7. Default: 1. */
  readonly votes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number) => void) | undefined;
}

/** The temperature of reasons that vote: that of the quickstart's rollouts. */
export const VOTE_TEMPERATURE = 0.7;

/** Solutions whose verdicts are written together. */
const SOLUTIONS_AT_ONCE = 64;

/** A labelled step to judge. */
interface Place {
  readonly solution: number;
  readonly rowId: number;
  readonly step: number;
  readonly label: 0 | 1;
  readonly at: number;
  readonly trunk: Int32Array;
}

/** The answer of the model after one reason that ended. */
interface Answer {
  readonly reason: readonly number[];
  /** The word that it wrote; undefined for neither. */
  readonly word: 1 | 0 | undefined;
  readonly logPositive: number;
  readonly logNegative: number;
}

const probabilityIn = ({ logPositive, logNegative }: Pick<Answer, 'logPositive' | 'logNegative'>) =>
  1 / (1 + exp(logNegative - logPositive));

/**
 * Every labelled verdict of the sequences after the most likely reason, or by the mean probability after several drawn
 * ones; unreadable where no reason ends, with probability 0.5.
 */
export async function judgeWrittenVerdicts(
  decoder: Decoder,
  role: Role,
  sequences: Dataset<VerdictSequence>,
  { tokenizer, threshold, microBatchTokens, votes = 1, signal, onProgress }: WrittenJudgeOptions,
): Promise<JudgedVerdict[]> {
  const judged: JudgedVerdict[] = [];
  for (let first = 0; first < sequences.length; first += SOLUTIONS_AT_ONCE) {
    const chosen = indices(sequences).slice(first, first + SOLUTIONS_AT_ONCE);
    const asked = chosen.flatMap((solution): Place[] => {
      const { solution: of, rowId } = sequences.get(solution);
      return of.verdicts.flatMap(({ step, label, at }) =>
        label === null ? [] : [{ solution, rowId, step, label, at, trunk: of.trunk.ids }],
      );
    });
    const answers = asked.map((): Answer[] => []);
    for (let vote = 0; vote < votes; vote++) {
      const options = { tokenizer, microBatchTokens, signal, vote: votes === 1 ? undefined : vote };
      const found = await answersTo(decoder, role, asked, options);
      if (!found) return judged;
      found.forEach((answer, i) => {
        if (answer) answers[i]?.push(answer);
      });
    }
    asked.forEach(({ solution, step, label }, i) => {
      const own = answers[i] as readonly Answer[];
      judged.push({ solution, step, label, ...verdictBy(own, { threshold, votes, tokenizer }) });
    });
    onProgress?.(Math.min(first + SOLUTIONS_AT_ONCE, sequences.length));
  }
  return judged;
}

/** The verdict of one answer, or by the mean probability of several; the reason is of one that agrees. */
function verdictBy(
  answers: readonly Answer[],
  {
    threshold,
    votes,
    tokenizer: { tokenizer },
  }: Pick<WrittenJudgeOptions, 'threshold' | 'tokenizer' | 'votes'>,
): Omit<JudgedVerdict, 'solution' | 'step' | 'label'> {
  const [first] = answers;
  if (!first)
    return {
      ...{ logPositive: -Math.LN2, logNegative: -Math.LN2, probability: 0.5 },
      ...{ verdict: undefined, unreadable: true },
    };
  const said = ({ reason }: Answer) => tokenizer.decode(reason).trim();
  if (votes === 1) {
    const probability = probabilityIn(first);
    const verdict = threshold === 'greedy' ? first.word : probability >= threshold ? 1 : 0;
    const { logPositive, logNegative } = first;
    return { logPositive, logNegative, probability, verdict, reason: said(first) };
  }
  const each = answers.map(probabilityIn);
  const probability = each.reduce((sum, p) => sum + p, 0) / each.length;
  const verdict = probability >= (threshold === 'greedy' ? 0.5 : threshold) ? 1 : 0;
  const agrees = answers[each.findIndex((p) => (p >= 0.5 ? 1 : 0) === verdict)] ?? first;
  const least = Number.MIN_VALUE;
  return {
    logPositive: log(Math.max(probability, least)),
    logNegative: log(Math.max(1 - probability, least)),
    ...{ probability, verdict, reason: said(agrees) },
  };
}

/**
 * An answer to each place; undefined where its reason does not end, and for all if the signal stopped it. A draw depends on
 * its own prompt and the number of its vote alone.
 */
async function answersTo(
  decoder: Decoder,
  role: Role,
  asked: readonly Place[],
  {
    tokenizer,
    microBatchTokens,
    signal,
    vote,
  }: Pick<WrittenJudgeOptions, 'tokenizer' | 'microBatchTokens' | 'signal'> & {
    readonly vote: number | undefined;
  },
): Promise<(Answer | undefined)[] | undefined> {
  const { template, tailIds } = tokenizer;
  const prompts = asked.map(({ trunk, at }) => [...trunk.slice(0, at), ...tailIds]);
  const drawn =
    vote === undefined
      ? { temperature: 0 }
      : {
          ...{ temperature: VOTE_TEMPERATURE, iteration: vote },
          promptIds: prompts.map((ids) => textHash(ids.join())),
        };
  const written = await writeVerdicts(decoder, prompts, {
    ...{ tokenizer, role, ...drawn },
    ...(signal ? { signal } : {}),
  });
  if (!written) return undefined;
  const readable = asked.flatMap((place, i) => {
    const { tokens, reason } = written[i] as WrittenVerdict;
    return reason === undefined ? [] : [{ place, i, tokens, reason: tokens.slice(0, reason) }];
  });
  const answers: (Answer | undefined)[] = asked.map(() => undefined);
  const groups = groupBySize(readable, ({ place: { at } }) => at, microBatchTokens);
  const ofWords = (group: readonly (typeof readable)[number][]) =>
    wordLogprobs(
      decoder,
      role,
      group.map(({ place: { trunk, at, rowId }, reason }) => {
        const words = [template.positiveIds, template.negativeIds].map((word) => [...reason, ...word]);
        return { ...branchedSequence(trunk, [{ at, answers: words }], tailIds), rowId };
      }),
      template,
    );
  await overGroups(decoder.device, groups, ofWords, {
    onGroup: (scored, group) =>
      group.forEach(({ i, tokens, reason }, k) => {
        const [logPositive, logNegative] = scored[k] as readonly [number, number];
        const word = wordOf(tokens.slice(reason.length), template);
        answers[i] = { reason, word, logPositive, logNegative };
      }),
  });
  return answers;
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
