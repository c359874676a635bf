/** The solutions of a batch: the student's own, or the worked ones of the data; with a served teacher's log-probs. */
import { foundOnce } from '../../cluster/exchange.js';
import { rightSolution } from '../../data/problems/solution.js';
import { badFile } from '../../files/data-error.js';
import { PhiloxStream } from '../../random/philox.js';
import type { Device } from '../../runtime/device.js';
import { processesOf } from '../../runtime/processes.js';
import type { AnswerTokenizer } from '../../scoring/implicit/tokens.js';
import { warn } from '../../terminal/log.js';
import type { RolloutSource } from '../../train/policy/records.js';
import type { RunProblem } from '../../train/solutions/problems.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import type { SolutionGroup } from '../ppo/rollout.js';
import { type ServedTeacher, servedLogprobs } from './served-teacher.js';

export interface DistillRolloutOptions {
  readonly device: Device;
  readonly onPolicy: RolloutSource<SolutionGroup>;
  /** Share of batches that are the student's own solutions. */
  readonly lmbda: number;
  readonly seed: number;
  readonly promptOf: (item: number) => SolutionPrompt;
  readonly problemOf: (item: number) => RunProblem;
  readonly answers: AnswerTokenizer;
  readonly longest: number;
  readonly teacher: ServedTeacher | undefined;
}

/** Domain of the random stream that chooses between the student's solutions and those of the data. */
const CHOICE = 0x6c6d6264;

export function distillRollouts(options: DistillRolloutOptions): RolloutSource<SolutionGroup> {
  const { device, onPolicy, lmbda, seed, promptOf, teacher, longest } = options;
  let hasWarned = false;
  const warnOfCut = (groups: readonly SolutionGroup[]) => {
    const cut = groups.filter(({ answers }) => answers.some(({ truncated }) => truncated)).length;
    if (cut === 0 || hasWarned) return;
    hasWarned = true;
    warn(
      `${cut} of ${groups.length} worked solutions of a batch are longer than rollout.max_new_tokens (${longest}), and what follows is not ` +
        'learned; raise it, as far as data.max_length leaves room',
    );
  };
  return {
    async rollOut(batch) {
      const isOwn = new PhiloxStream(seed, CHOICE, batch.iteration).uniform() < lmbda;
      const groups = isOwn ? await onPolicy.rollOut(batch) : batch.items.map((item) => worked(item, options));
      if (groups && !isOwn) warnOfCut(groups);
      if (!groups || !teacher) return groups;
      const asked = groups.flatMap(({ item, answers }) =>
        answers.map(({ tokens }) => ({ prompt: promptOf(item).ids, tokens })),
      );
      const found = await foundOnce(processesOf(device)?.cluster, () =>
        servedLogprobs(teacher, asked, batch.signal),
      );
      let at = 0;
      return (
        found &&
        groups.map((group) => ({
          ...group,
          answers: group.answers.map((answer) => ({ ...answer, refLogprobs: found[at++] as number[] })),
        }))
      );
    },
    dispose: () => onPolicy.dispose?.(),
  };
}

/** The solution of the data, cut off where a sampled one would be. */
function worked(item: number, { problemOf, answers, longest }: DistillRolloutOptions): SolutionGroup {
  const { solution, generated, problem } = problemOf(item);
  const text = solution ?? (generated && rightSolution(generated).join('\n'));
  if (text === undefined)
    throw badFile(
      `the problem ${JSON.stringify(problem.slice(0, 60))} has no worked solution, and distill.lmbda below 1 learns from those of the data; ` +
        'give rows with a solution, or set distill.lmbda to 1',
    );
  const steps = [{ text, label: null, kind: 'normal' as const }];
  const { ids } = answers.answer({}, steps, { label: null });
  const tokens = ids.slice(0, longest);
  const none = { oldLogprobs: [], refLogprobs: [], values: [], samplerLogprobs: [] };
  return { item, answers: [{ ...none, tokens, text, truncated: tokens.length < ids.length }] };
}
