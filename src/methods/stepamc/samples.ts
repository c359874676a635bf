/** Metrics of the verdicts of a rollout batch, and samples of them to read. */
import { ratio } from '../../eval/statistics/metrics.js';
import type { Metrics } from '../../train/stage.js';
import type { VerdictData } from '../../train/verdicts/data.js';
import type { CreditedQuestion } from './rollout.js';

/** Accuracy of the answers by class, over the labelled steps and weighted by their shares. */
export function answerMetrics(questions: readonly CreditedQuestion[]): Metrics {
  const answers = questions.flatMap(({ answers, label }) => answers.map((answer) => ({ ...answer, label })));
  if (answers.length === 0) return {};
  // Absent, and not 0, where no step has the label.
  const right = (name: string, label: 1 | 0): Metrics => {
    const own = answers.filter((answer) => answer.label === label);
    if (own.length === 0) return {};
    const mass = own.reduce((sum, { share }) => sum + share, 0);
    const hits = own.reduce((sum, { share, verdict }) => sum + (verdict === label ? share : 0), 0);
    return { [name]: ratio(hits, mass) };
  };
  return {
    rollout_verdicts: questions.length,
    ...right('rollout_acc_pos', 1),
    ...right('rollout_acc_neg', 0),
    rollout_invalid: ratio(answers.filter(({ verdict }) => verdict === undefined).length, answers.length),
  };
}

/** Rollouts to read: the first few questions of an iteration. */
const SHOWN_SAMPLES = 4;

export function* rolloutSamples(
  questions: readonly CreditedQuestion[],
  { records, tokenizer: { tokenizer } }: Pick<VerdictData, 'records' | 'tokenizer'>,
  iteration: number,
): Generator<Record<string, unknown>> {
  for (const { item, step, label, answers } of questions.slice(0, SHOWN_SAMPLES)) {
    const record = records.train.get(item);
    yield {
      iteration,
      problem: record.problem,
      steps: record.steps.slice(0, step + 1).map(({ text }) => text),
      label,
      answers: answers.map((answer) => ({
        verdict: answer.verdict ?? null,
        ...(answer.reason ? { reason: tokenizer.decode(answer.tokens.slice(0, answer.reason)).trim() } : {}),
        tokens: answer.tokens,
        logprob: answer.oldLogprobs.reduce((sum, logprob) => sum + logprob, 0),
        reward: answer.reward,
        advantages: answer.advantages,
      })),
    };
  }
}
