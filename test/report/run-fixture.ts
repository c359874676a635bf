// Run directories as runs write them, made in a moment: metrics, verdicts, rollouts, results.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { evaluateVerdicts } from '../../src/eval/evaluate-verdicts.js';
import type { StepRecord } from '../../src/records/record.js';

export interface RunFixture {
  /** Logged lines of the policy stage. */
  readonly steps?: number;
  /** Stands in problems, steps, answers, configuration and metrics. */
  readonly text?: string;
  readonly isFinished?: boolean;
}

/** A run of stepamc: warm-up, policy stage, final evaluation. */
export function makeRun(path: string, { steps = 30, text = '', isFinished = true }: RunFixture = {}): string {
  mkdirSync(path, { recursive: true });
  const write = (name: string, content: string) => writeFileSync(join(path, name), content);
  const lines = (name: string, rows: readonly object[]) =>
    write(name, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  write(
    'config.yaml',
    `# ${text.replaceAll('\n', ' ')}\nmethod: stepamc\nmodel:\n  base: word-problems\ndata:\n  source: word_problems\nrun:\n  seed: 42\n  device: cpu\n`,
  );
  const policy = Array.from({ length: steps }, (_, i) => ({
    step: 20 + i + 1,
    phase: 'ppo',
    phase_step: i + 1,
    loss: 1 / (i + 1),
    policy_loss: -0.01 * i,
    value_loss: 0.1,
    constraint_loss: 0.5,
    kl_k3: 0.001 * i,
    alpha: 0.5,
    reward_mean: i / steps,
    reward_min: -1,
    reward_max: 1,
    learning_rate: 1e-4,
    acc_pos: 0.5,
    update_seconds: 0.2,
    tokens: 1000 * (i + 1),
    peak_bytes: 5e7,
  }));
  lines('metrics.jsonl', [
    { step: 0, phase: 'sft', phase_step: 0, f1_macro: 0.4, acc_pos: 0.5 },
    ...[10, 20].map((step) => ({
      step,
      phase: 'sft',
      phase_step: step,
      loss: 1 - step / 40,
      tokens: 10 * step,
    })),
    { step: 20, phase: 'sft', phase_step: 20, f1_macro: 0.7, acc_pos: 0.8 },
    { step: 20, phase: 'sft', phase_step: 20, best_step: 20, best_f1_macro: 0.7 },
    ...policy,
    ...(isFinished ? [{ step: 20 + steps, phase: 'test', f1_macro: 0.75, [`${text}x`]: 1 }] : []),
  ]);
  lines('samples.jsonl', [
    {
      iteration: 0,
      problem: `What is $\\frac{1}{2} + \\frac{1}{2}$? ${text}`,
      steps: [`half and half ${text}`],
      label: 1,
      answers: [{ verdict: 1, tokens: [5], logprob: -0.2, reward: 0.8, advantages: [0.1] }],
    },
    {
      iteration: 3,
      problem: `Tom has 3 apples. ${text}`,
      answer: '4',
      solutions: [
        {
          text: `3 + 1 = 4${text}\nAnswer: 4`,
          tokens: 12,
          truncated: false,
          reward: 1,
          terms: { outcome: 1 },
          rewards: { 5: 0.5, 11: 0.5 },
          logprob: -3,
          advantage: 0.7,
        },
      ],
    },
  ]);
  write(
    'memory.json',
    JSON.stringify({
      device: 'cpu',
      planned_bytes: { base: 8e6, policy: 2e6 },
      planned_peak_bytes: 6e7,
      held_bytes: { base: 7e6, policy: 1e6 },
    }),
  );
  if (!isFinished) return path;
  const { rows, report } = evaluated(text);
  lines('verdicts.jsonl', rows);
  write('eval.json', JSON.stringify(report));
  return path;
}

/** 40 solutions of two steps; every fourth verdict is wrong. */
function evaluated(text: string) {
  const records = Array.from(
    { length: 40 },
    (_, i): StepRecord => ({
      problem: `Problem ${i}: how much is \\(${i} + 1\\)? ${text}`,
      steps: [
        { text: `${i} + 1 = ${i + 1} ${text}`, label: 1, kind: 'normal' },
        { text: `so it is ${i + 2} ${text}`, label: 0, kind: 'normal' },
      ],
    }),
  );
  const judged = records.flatMap(({ steps }, solution) =>
    steps.map(({ label }, step) => {
      const right = (solution + step) % 4 !== 0;
      const verdict = (right ? label : 1 - (label as number)) as 0 | 1;
      const probability = verdict === 1 ? 0.9 : 0.2;
      const logprobs = { logPositive: Math.log(probability), logNegative: Math.log(1 - probability) };
      return { solution, step, label: label as 0 | 1, verdict, probability, ...logprobs };
    }),
  );
  const report = evaluateVerdicts(judged, {
    method: 'stepamc',
    data: { source: 'word_problems' },
    records,
    invalidAsWrong: true,
    positivePrior: 0.5,
    warnings: [`a warning ${text}`],
    bootstrap: { resamples: 50 },
  });
  const rows = judged.map(({ logPositive: _, logNegative: __, ...each }) => ({
    problem: records[each.solution]?.problem,
    ...each,
    text: records[each.solution]?.steps[each.step]?.text,
  }));
  return { rows, report };
}
