/**
 * Beam search over steps with a reward model: every beam is continued by one step in several ways, the reward model scores
 * the steps so far, and the best beams go on.
 */
import type { Model } from '../../api/model.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import { type CorrectionReading, readStanding } from '../../data/corrections/standing.js';
import { Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import { stepsBy } from '../../records/segment.js';
import { numbersOf, type Scorer, sampled } from '../../scoring/scorer.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { type Aggregation, aggregated, untilWrong } from './aggregation.js';
import type { Sampling } from './settings.js';

export interface SearchSettings {
  /** Number of solutions kept after each step. */
  readonly beams: number;
  /** Continuations of each by one step. */
  readonly expansions: number;
  /** Max steps; a solution that has not ended by then is completed without further choice. */
  readonly rounds: number;
  /** The text that ends a step. */
  readonly separator: string;
}

export interface SearchOptions extends SearchSettings, Sampling {
  readonly tokenizer: Tokenizer;
  readonly scorer: Scorer;
  readonly aggregation: Aggregation;
  /** Whether only the scores up to the first below one half count. */
  readonly untilWrong: boolean;
  /** The model corrects itself: the scorer sees the steps that stand. */
  readonly corrections?: CorrectionReading | undefined;
  /** Max samples at a time. */
  readonly maxRows?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called after each problem. */
  readonly onProblem?: () => void;
}

/** The result of a search for one problem. */
export interface Searched {
  /** Text of the beam with the highest score. */
  readonly text: string;
  /** null where the reward model cannot read it. */
  readonly score: number | null;
  /** False if this beam, and every other, was cut off. */
  readonly finished: boolean;
  /** Tokens drawn for the problem, including those of dropped beams. */
  readonly tokens: number;
  readonly rounds: number;
}

interface Beam {
  readonly ids: readonly number[];
  readonly text: string;
  /** `cut`: the limit of tokens was reached; the beam has no answer and is chosen last. */
  readonly state: 'open' | 'finished' | 'cut';
  /** −Infinity where the reward model cannot read it. */
  readonly score: number;
}

/** Searches and samples of the same seed draw different random numbers. */
const SEARCH_ROUNDS = 1 << 16;

/**
 * Searches each problem; beams of a problem share the pages of their common prefix. The result for a problem depends on
 * it, its number and the settings alone. A prompt that fills the model has no solution.
 *
 * @param prompts token ids by problem
 * @throws the signal's reason where it was aborted
 */
export async function searchSolutions(
  model: Pick<Model, 'decoder' | 'adapter'>,
  problems: readonly Problem[],
  prompts: readonly (readonly number[])[],
  options: SearchOptions,
): Promise<Searched[]> {
  const { beams, expansions, maxRows, maxNewTokens, tokenizer, onProblem } = options;
  const { decoder } = model;
  const fits = (ids: readonly number[]) => ids.length < decoder.config.maxPositions;
  const fed = prompts.filter(fits).map((ids) => [...ids]);
  const cache = { n: beams * expansions, maxNewTokens, maxRows, tokenizer };
  const room = roomToGenerate(decoder, fed, cache);
  using generator = new Generator(decoder, room);
  const found: Searched[] = [];
  const together = Math.max(1, Math.floor(room.maxRows / (beams * expansions)));
  for (let at = 0; at < problems.length; at += together) {
    const chunk = problems.slice(at, at + together).map(async (problem, i) => {
      const prompt = prompts[at + i] as readonly number[];
      const nothing = { text: '', score: null, finished: false, tokens: 0, rounds: 0 };
      const own = fits(prompt)
        ? await new Search(generator, model, problem, at + i, prompt, options).run()
        : nothing;
      onProblem?.();
      return own;
    });
    found.push(...(await Promise.all(chunk)));
  }
  return found;
}

/** The search of one problem. */
class Search {
  private tokens = 0;

  constructor(
    private readonly generator: Generator,
    private readonly model: Pick<Model, 'adapter'>,
    private readonly problem: Problem,
    private readonly index: number,
    private readonly prompt: readonly number[],
    private readonly options: SearchOptions,
  ) {}

  async run(): Promise<Searched> {
    const { beams, rounds } = this.options;
    let kept: readonly Beam[] = [{ ids: [], text: '', state: 'open', score: Number.NEGATIVE_INFINITY }];
    let round = 0;
    for (; kept.some(isOpen); round++) {
      const toEnd = round >= rounds - 1;
      const grown = await Promise.all(
        kept.filter(isOpen).map((beam, b) => this.expand(beam, b, round, toEnd)),
      );
      const scored = await this.scored(grown.flat());
      kept = bestBeams([...kept.filter((beam) => !isOpen(beam)), ...scored], beams);
    }
    const { text, score, state } = kept[0] as Beam;
    const { tokens } = this;
    const finished = state === 'finished';
    return { text, score: Number.isFinite(score) ? score : null, finished, tokens, rounds: round };
  }

  /** A beam continued by one step, or to its end, in several ways; without scores. */
  private async expand(
    { ids, text }: Beam,
    b: number,
    round: number,
    toEnd: boolean,
  ): Promise<Omit<Beam, 'score'>[]> {
    const { options, model, prompt, index } = this;
    const { beams, expansions, separator, maxNewTokens, stop, signal, tokenizer } = options;
    const { temperature, topK, topP, minP, seed, eosTokenIds } = options;
    // The longest continuation, within the model too.
    const longest = Math.min(maxNewTokens, this.generator.decoder.config.maxPositions - prompt.length);
    const generation = this.generator.generate([[...prompt, ...ids]], {
      ...{ temperature, topK, topP, minP, seed, eosTokenIds },
      n: expansions,
      maxNewTokens: longest - ids.length,
      stop: toEnd ? stop : [...stop, separator],
      iteration: SEARCH_ROUNDS + round,
      promptIds: [(index * beams + b) % 2 ** 32],
      role: model.adapter ? { adapter: model.adapter } : {},
      tokenizer,
      ...(signal ? { signal } : {}),
    });
    const [samples = []] = await generation.samples;
    signal?.throwIfAborted();
    return samples.map(({ tokens, text: added = '', finishReason, stop: by }) => {
      this.tokens += tokens.length;
      const whole = [...ids, ...tokens];
      const between = !toEnd && by === separator;
      const full = finishReason !== 'stop' || (between && whole.length >= longest);
      return {
        ids: whole,
        text: `${text}${added}${between ? separator : ''}`,
        state: full ? 'cut' : between ? 'open' : 'finished',
      };
    });
  }

  private async scored(beams: readonly Omit<Beam, 'score'>[]): Promise<Beam[]> {
    const { scorer, aggregation, corrections, signal, untilWrong: cut } = this.options;
    const solutions = beams.map(({ text }, sample) => {
      const steps = readStanding(stepsBy(text, scorer.segmentation), corrections).map((step) => step.text);
      return sampled(this.problem, { problem: this.index, sample, text }, steps);
    });
    const scores = await scorer.score(solutions, { signal });
    signal?.throwIfAborted();
    return beams.map((beam, i) => {
      const found = scores?.[i];
      const own = found ? numbersOf(scorer, found) : [];
      const score = aggregated(cut ? untilWrong(own) : own, aggregation);
      return {
        ...beam,
        score: beam.state === 'cut' ? Number.NEGATIVE_INFINITY : (score ?? Number.NEGATIVE_INFINITY),
      };
    });
  }
}

function isOpen({ state }: Beam): boolean {
  return state === 'open';
}

/** The best beams with different texts, best first; among equal scores the earlier one. */
export function bestBeams<B extends Pick<Beam, 'text' | 'score'>>(pool: readonly B[], beams: number): B[] {
  const different = pool.filter(({ text }, i) => pool.findIndex((earlier) => earlier.text === text) === i);
  return different.toSorted((a, b) => b.score - a.score).slice(0, beams);
}
