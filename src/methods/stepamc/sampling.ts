/**
 * The policy's answers. Words of one token are drawn from the forward that scores them, one branched pass for all
 * questions of a solution. Longer words are sampled by the generation engine, where the questions of a solution share its
 * prefix. In both cases any token may be drawn: the reward also judges an answer that is not a word.
 */
import type { VerdictTemplate, VerdictTokenizer } from '../../data/verdict.js';
import { Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { Sample } from '../../generate/rows/sample-row.js';
import { generateTogether } from '../../generate/together.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { invalid, type StepTrainError } from '../../native/errors.js';
import { headLogits } from '../../ops/head.js';
import { gatherRows } from '../../ops/memory.js';
import { type Counter, keyOfSeed, philox4x32 } from '../../random/philox.js';
import { writeVerdicts } from '../../scoring/verdict/written-verdicts.js';
import { type HiddenStates, hiddenStates } from '../../sequences/forward.js';
import type { VerdictSequence } from '../../sequences/sequence.js';
import type { StepPart } from '../../train/stage.js';
import { answeredSequence, type Draft } from './questions.js';

export interface AnswerSampling {
  readonly decoder: Decoder;
  readonly policy: Role;
  readonly template: VerdictTemplate;
  readonly tailIds: readonly number[];
  /** Needed where answers have reasons. */
  readonly tokenizer?: VerdictTokenizer['tokenizer'] | undefined;
  readonly temperature: number;
  /** Bytes for keys and values. Default: all that fit. */
  readonly cacheBytes?: number | undefined;
  readonly seed: number;
  readonly iteration: number;
  readonly signal: AbortSignal;
  readonly report?: ((part: StepPart) => void) | undefined;
}

/** A solution with the drafts whose answers are to be drawn. */
export interface DraftedSolution {
  readonly sequence: VerdictSequence;
  readonly drafts: readonly Draft[];
}

/** Max bytes of logits while sampling. */
const LOGIT_BYTES = 64 << 20;

/** Domain of the keys of sampling. */
const SAMPLING = 0x73616d70;

/** Whether an answer is one token, so that one pass draws it. */
export function hasOneTokenWords({
  positiveIds,
  negativeIds,
  rationaleTokens,
}: Pick<VerdictTemplate, 'positiveIds' | 'negativeIds' | 'rationaleTokens'>): boolean {
  return positiveIds.length === 1 && negativeIds.length === 1 && rationaleTokens === 0;
}

/** Draws answers of one token. The returned states also score them; the caller disposes them. */
export async function drawWords(
  solutions: readonly DraftedSolution[],
  { decoder, policy, tailIds, temperature, ...options }: AnswerSampling,
): Promise<HiddenStates | undefined> {
  const { device } = decoder;
  // The last token of an answer is not read, so it can be any.
  const asked = solutions.map(({ sequence, drafts }) =>
    answeredSequence(
      sequence,
      drafts.map(({ place }) => ({ place, answers: [[0]] })),
      tailIds,
    ),
  );
  const questions = solutions.flatMap(({ sequence: { rowId }, drafts }, i) =>
    drafts.map((draft, j) => ({
      draft,
      sequence: i,
      row: asked[i]?.answers[j]?.[0]?.rows[0]?.row as number,
      key: drawn(options, [options.iteration, rowId, draft.place, SAMPLING]),
    })),
  );
  if (questions.length === 0) return undefined;
  const states = device.scope(() => hiddenStates(decoder, policy, asked), 'rollout');
  const rowsAtOnce = Math.max(1, Math.floor(LOGIT_BYTES / (4 * decoder.config.vocabSize)));
  for (let first = 0; first < questions.length; first += rowsAtOnce) {
    const slice = questions.slice(first, first + rowsAtOnce);
    const outputs = device.scope(() => {
      const rows = slice.map(({ sequence, row }) => (states.offsets[sequence] as number) + row);
      const hidden = gatherRows(states.hidden, device.tensor(Int32Array.from(rows)));
      const { tokens, tempered_logprobs, status } = device.ops.sample({
        logits: headLogits(hidden, decoder.head(policy)),
        keys: device.tensor(Int32Array.from(slice.flatMap(({ key: [a, b] }) => [a, b, 0, 0])), [
          slice.length,
          4,
        ]),
        temperature: device.tensor(new Float32Array(slice.length).fill(temperature)),
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
    if (status.some((code) => code !== 0)) throw noToken();
    slice.forEach(({ draft }, i) => {
      draft.answers[0] = { tokens: [tokens[i] as number], sampler: [logprobs[i] as number], reason: 0 };
    });
  }
  return states;
}

/** Samples answers of several tokens: after a reason if they have one, until it is a word or cannot become one; false if stopped. */
export async function writeAnswers(
  solutions: readonly DraftedSolution[],
  { decoder, policy, template, tokenizer, tailIds, ...sampling }: AnswerSampling,
): Promise<boolean> {
  const { temperature, cacheBytes, signal, iteration, seed, report } = sampling;
  const questions = solutions.flatMap(({ sequence, drafts }) => drafts.map((draft) => ({ sequence, draft })));
  const prompts = questions.map(({ sequence: { solution }, draft: { place } }) => [
    ...solution.trunk.ids.slice(0, solution.verdicts[place]?.at),
    ...tailIds,
  ]);
  let [done, tokens] = [0, 0];
  const onSample = (_prompt: number, _sample: number, ended: Pick<Sample, 'tokens'>) => {
    tokens += ended.tokens.length;
    report?.({ unit: 'rollout: answer', done: ++done, total: questions.length, tokens });
  };
  // A number that identifies the question and does not depend on the other ones.
  const promptIds = questions.map(
    ({ sequence: { rowId }, draft: { place } }) => drawn({ seed }, [rowId, place, 0, SAMPLING])[0],
  );
  if (template.rationaleTokens > 0) {
    if (!tokenizer) throw new RangeError('answers with reasons need the tokenizer');
    const written = await writeVerdicts(decoder, prompts, {
      tokenizer: { template, tokenizer },
      role: policy,
      ...{ temperature, cacheBytes, signal, iteration, seed, promptIds, onSample },
    });
    written?.forEach(({ tokens, logprobs, reason }, i) => {
      (questions[i] as (typeof questions)[number]).draft.answers[0] = { tokens, sampler: logprobs, reason };
    });
    return written !== undefined;
  }
  const choices = [template.positiveIds, template.negativeIds];
  const options = {
    role: policy,
    temperature,
    choices,
    choicesOnly: false,
    maxNewTokens: Math.max(...choices.map(({ length }) => length)),
    ignoreEos: true,
    seed,
    iteration,
    promptIds,
    signal,
    onSample,
  };
  using generator = new Generator(decoder, roomToGenerate(decoder, prompts, { ...options, cacheBytes }));
  const samples = await generateTogether(generator, prompts, options);
  if (signal.aborted) return false;
  samples.forEach(([sample], i) => {
    if (!sample || sample.finishReason === 'error') throw noToken();
    const { tokens, temperedLogprobs } = sample;
    (questions[i] as (typeof questions)[number]).draft.answers[0] = {
      tokens,
      sampler: [...temperedLogprobs],
      reason: 0,
    };
  });
  return true;
}

function drawn({ seed }: Pick<AnswerSampling, 'seed'>, counter: Counter): readonly [number, number] {
  const [a, b] = philox4x32(counter, keyOfSeed(seed));
  return [a, b];
}

function noToken(): StepTrainError {
  return invalid("rollout: a logit of the policy's answer is NaN or infinite, so there is no token to draw");
}
