/** The objective: the divergence of the student's next-token distribution from the teacher's, on every token of a solution. */
import { type DivergenceStatistic, divergence, sampledDivergence } from '../../objectives/divergence.js';
import { hiddenStates, logprobsAt, vocabularyAt } from '../../sequences/forward.js';
import { accumulate, balanceOf, type LossTerm } from '../../train/accumulate.js';
import type { CreditedGroup, PolicyGradients, PolicyObjective } from '../../train/policy/records.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import { piecesOf } from '../ppo/objective.js';
import type { SolutionGroup } from '../ppo/rollout.js';
import { type LocalTeacher, readsBranches } from './local-teacher.js';
import type { DistillRoles } from './roles.js';

export interface DistillObjectiveOptions {
  readonly roles: Pick<DistillRoles, 'decoder' | 'policy' | 'policyParameters'>;
  /** Absent: the teacher's log-probs stand in `refLogprobs`. */
  readonly teacher: LocalTeacher | undefined;
  readonly beta: number;
  readonly temperature: number;
  readonly promptOf: (item: number) => SolutionPrompt;
  readonly microBatchTokens: number;
}

type Statistic = DivergenceStatistic | 'lead';

/** The mean over the tokens of a batch, by their weights. */
export function distillObjective(options: DistillObjectiveOptions): PolicyObjective<SolutionGroup> {
  const { roles, teacher, beta, temperature, promptOf, microBatchTokens } = options;
  const { decoder, policy, policyParameters } = roles;
  const { device } = decoder;
  const branches = readsBranches(decoder.config) && (teacher?.branches ?? true);
  return {
    async gradients(groups): Promise<PolicyGradients<SolutionGroup>> {
      const pieces = groups.flatMap((group) =>
        piecesOf(group, { promptOf, microBatchTokens, settings: { branches } }),
      );
      type Piece = (typeof pieces)[number];
      const sequencesOf = (group: readonly Piece[]) => group.map(({ sequence }) => sequence);
      const rowsOf = (group: readonly Piece[]) => group.map(({ rows }) => rows);
      const total =
        groups.flatMap(({ answers }) => answers).reduce((sum, answer) => sum + massOf(answer), 0) || 1;
      const parts = await accumulate(
        pieces,
        {
          device,
          microBatchTokens,
          sizeOf: ({ sequence }) => sequence.ids.length,
          normaliser: () => total,
          trains: [policyParameters],
          scope: 'distill',
          before: (group) => teacher?.logits(sequencesOf(group), rowsOf(group), temperature),
        },
        (group, total, seen): LossTerm<Statistic>[] => {
          const answers = group.flatMap((piece) => piece.answers);
          const upload = (values: readonly number[]) => device.tensor(Float32Array.from(values));
          const weights = upload(
            answers.flatMap((answer) => weightsOf(answer).map((weight) => weight / total)),
          );
          const states = hiddenStates(decoder, policy, sequencesOf(group));
          if (seen)
            return [
              divergence(
                { student: vocabularyAt(states, rowsOf(group), temperature), teacher: seen, weights },
                beta,
              ),
            ];
          const { logprobs: student } = logprobsAt(states, rowsOf(group), { temperature });
          return [
            sampledDivergence({
              student,
              teacher: upload(answers.flatMap((answer) => answer.refLogprobs)),
              weights,
            }),
          ];
        },
      );
      const loss = parts.reduce((sum, part) => sum + part.loss, 0);
      const names = Object.keys(parts[0]?.statistics ?? {}).filter(
        (name) => name !== 'weight',
      ) as Statistic[];
      const shares = parts.map(({ statistics }) => statistics.weight);
      const meanOf = (name: Statistic) =>
        parts.reduce((sum, { statistics }, i) => sum + (shares[i] as number) * statistics[name], 0) /
        (shares.reduce((sum, share) => sum + share, 0) || 1);
      return {
        loss,
        terms: { divergence: loss },
        metrics: { ...Object.fromEntries(names.map((name) => [name, meanOf(name)])), ...balanceOf(parts) },
        shown: {},
        tokens: pieces.reduce((sum, { sequence }) => sum + sequence.ids.length, 0),
      };
    },
  };
}

type Answer = CreditedGroup<SolutionGroup>['answers'][number];

const weightsOf = ({ tokens, importance }: Answer): readonly number[] => importance ?? tokens.map(() => 1);

const massOf = (answer: Answer) => weightsOf(answer).reduce((sum, weight) => sum + weight, 0);
