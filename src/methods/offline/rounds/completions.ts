/** The judge that needs neither another model nor worked solutions: where the model itself still reaches the answer. */
import { rolloutLabels } from '../../../eval/completions/rollout-labels.js';
import { stepPieces } from '../../../records/steps.js';
import { type Scorer, type Solution, scorer, textOf } from '../../../scoring/scorer.js';
import { endTokens } from '../../../tokenizer/reply-end.js';
import type { AskingRun } from './run.js';

/**
 * A step is right if one of `judge.completions` continuations of it, by the model that round `iteration` begins with, reaches the
 * answer (Math-Shepherd, arXiv 2312.08935); its score is their share. They are drawn as candidates are.
 */
export function completionsJudge(
  { config, data, roles: { decoder, role }, tokenizer }: AskingRun,
  iteration: number,
): Scorer {
  const { judge, sampling, run } = config;
  const { prompt } = data.asked;
  const options = {
    k: judge.completions,
    prompt,
    maxNewTokens: sampling.max_new_tokens,
    temperature: sampling.temperature,
    topP: sampling.top_p,
    topK: sampling.top_k,
    minP: sampling.min_p,
    stop: [...sampling.stop, ...prompt.stop],
    eosTokenIds: endTokens(decoder.config, tokenizer),
    seed: (run.seed + iteration) >>> 0,
    ...(sampling.max_rows === 'auto' ? {} : { maxRows: sampling.max_rows }),
  };
  return scorer({
    name: 'completions',
    // A step from which one completion in `judge.completions` gets there is right.
    threshold: Number.MIN_VALUE,
    async score(solutions, { signal } = {}) {
      const asked = solutions.map((solution, i) => rolloutSolution(solution, i, sampling.num_generations));
      const model = { decoder, adapter: role.adapter };
      const found = await rolloutLabels(model, tokenizer, asked, { ...options, ...(signal && { signal }) });
      return found?.map(({ steps }) => ({ scores: steps.map(({ score = null }) => score) }));
    },
  });
}

function rolloutSolution({ problem, of, place, ...written }: Solution, i: number, samples: number) {
  const { problem: row, sample } = place ?? { problem: i, sample: 0 };
  return {
    problem,
    answer: of?.answer ?? '',
    steps: stepPieces(textOf(written)),
    index: row * samples + sample,
  };
}
