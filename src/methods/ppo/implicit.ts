/**
 * An implicit reward model that learns online (PRIME, arXiv 2502.01456): β·(log-prob − log-prob of the model that the run began
 * with) rewards every token, and the outcomes of the solutions that it has rewarded teach it; nobody labels steps.
 */
import { inMemory } from '../../data/dataset.js';
import type { PlacedRole } from '../../models/decoder.js';
import { StepTrainError } from '../../native/errors.js';
import type { OfflineItem } from '../../scoring/implicit/items.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { hiddenStates, logprobsAt } from '../../sequences/forward.js';
import { AdamW, adamSettings } from '../../train/adamw.js';
import type { RolloutBatch } from '../../train/policy/records.js';
import { gradeSolution, type RunProblem } from '../../train/solutions/problems.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import type { Metrics } from '../../train/stage.js';
import { applyGradients } from '../../train/update.js';
import { runBatch } from '../offline/answers/batch.js';
import { heldOutPlan } from '../offline/answers/plan.js';
import { implicitPrmObjective } from '../offline/implicit-prm.js';
import type { RewardSection } from './config.js';
import { IMPLICIT } from './reward-sections.js';
import type { ImplicitRole } from './roles.js';
import type { SolutionAnswer, SolutionGroup } from './rollout.js';
import { answeredPrompts, inParts } from './sequences.js';
import type { PpoSettings } from './settings.js';

export interface ImplicitRewardOptions {
  readonly role: ImplicitRole;
  readonly reward: RewardSection['implicit'];
  readonly settings: Pick<
    PpoSettings,
    'adam_beta1' | 'adam_beta2' | 'adam_epsilon' | 'weight_decay' | 'branches'
  >;
  readonly promptOf: (item: number) => SolutionPrompt;
  readonly problemOf: (item: number) => RunProblem;
  readonly microBatchTokens: number;
  /** Max steps in a row that may be skipped for a loss or gradient that is no number. */
  readonly maxSkipped: number;
}

/** A solution with the log-probs of the reference, by token. */
interface Scored {
  readonly item: number;
  readonly answer: SolutionAnswer;
  readonly reference: readonly number[];
}

export class ImplicitRewards {
  readonly optimizers: Readonly<Record<string, AdamW>>;
  /** The last scores, by problem. */
  private scored: readonly (readonly Scored[])[] = [];
  private skipped = 0;

  constructor(private readonly options: ImplicitRewardOptions) {
    const { role, reward, settings } = options;
    const adam = adamSettings({ ...settings, max_grad_norm: reward.max_grad_norm });
    this.optimizers = { [IMPLICIT]: new AdamW(role.parameters, adam) };
  }

  /** Rewards by solution of the groups, in order, and token; undefined if the signal stopped it. */
  async byToken(groups: readonly SolutionGroup[], signal: AbortSignal): Promise<number[][] | undefined> {
    const { role, reward } = this.options;
    const own = await this.logprobs(groups, role, signal);
    const reference = await this.logprobs(groups, role.reference, signal);
    if (!own || !reference) return undefined;
    let at = 0;
    this.scored = groups
      .map(({ item, answers }) =>
        answers.map((answer) => ({ item, answer, reference: reference[at++] as number[] })),
      )
      .filter(({ length }) => length > 0);
    return own.map((logprobs, i) =>
      logprobs.map((logprob, t) => reward.weight * reward.beta * (logprob - (reference[i]?.[t] as number))),
    );
  }

  /** One step on the outcomes of what was scored last. */
  async learn({ iteration }: RolloutBatch): Promise<{ readonly metrics: Metrics; readonly tokens: number }> {
    const { role, reward, settings, promptOf, problemOf, microBatchTokens, maxSkipped } = this.options;
    if (this.scored.length === 0) return { metrics: {}, tokens: 0 };
    // The solutions of a problem branch off its prompt, as where they are scored.
    const options = { budget: microBatchTokens, branches: settings.branches };
    const parts = this.scored.flatMap((solutions) =>
      inParts(
        promptOf((solutions[0] as Scored).item).ids.length,
        solutions,
        ({ answer }) => answer.tokens.length,
        options,
      ),
    );
    const items = parts.map((part): OfflineItem => {
      const { item } = part[0] as Scored;
      const answers = part.map(({ answer: { tokens, text, truncated } }) => {
        const { correct } = gradeSolution(problemOf(item), text, !truncated);
        const label = correct ? (1 as const) : (0 as const);
        return { ids: tokens, from: 0, steps: [], label };
      });
      return { problem: item, prompt: promptOf(item).ids, answers };
    });
    const { decoder, parameters } = role;
    const { metrics, tokens } = await runBatch(
      {
        decoder,
        role: role.role,
        objective: implicitPrmObjective(reward),
        plan: heldOutPlan(inMemory(items), { pairs: false, maxLength: 0 }),
        references: parts.map((part) =>
          part.map(({ reference }) => [reference.reduce((sum, value) => sum + value, 0)]),
        ),
        microBatchTokens,
      },
      0,
      { parameters, dropout: role.dropout(iteration) },
    );
    const { loss, accuracy = 0 } = metrics;
    const optimizer = this.optimizers[IMPLICIT] as AdamW;
    const update = await applyGradients(optimizer, reward.learning_rate, { implicit_loss: loss });
    if (update.nonFinite !== undefined) {
      this.skipped++;
      if (this.skipped < maxSkipped) return { metrics: { implicit_skipped: this.skipped }, tokens };
      throw new StepTrainError(
        'E_NONFINITE',
        `${update.nonFinite} was not finite in ${maxSkipped} steps of the implicit reward model in a row; lower reward.implicit.learning_rate`,
      );
    }
    this.skipped = 0;
    return {
      metrics: { implicit_loss: loss, implicit_accuracy: accuracy, implicit_grad_norm: update.gradNorm },
      tokens,
    };
  }

  state(): unknown {
    return { skipped: this.skipped };
  }

  restore(state: unknown): void {
    this.skipped = (state as { readonly skipped: number } | undefined)?.skipped ?? 0;
  }

  /** Log-probs by solution and token, at temperature 1. */
  private async logprobs(
    groups: readonly SolutionGroup[],
    { decoder, role }: PlacedRole,
    signal: AbortSignal,
  ): Promise<number[][] | undefined> {
    const { promptOf, settings, microBatchTokens } = this.options;
    const sequences = groups.flatMap(({ item, answers }) =>
      answeredPrompts(promptOf(item).ids, item, answers, {
        budget: microBatchTokens,
        branches: settings.branches,
      }),
    );
    const parts = groupBySize(sequences, ({ ids }) => ids.length, microBatchTokens);
    const score = async (part: readonly (typeof sequences)[number][]) => {
      const rows = part.map(({ solutions }) => solutions.flatMap((solution) => solution.rows));
      const { logprobs } = decoder.device.scope(
        () => ({ logprobs: logprobsAt(hiddenStates(decoder, role, part), rows).logprobs }),
        IMPLICIT,
      );
      const values = await logprobs.readFloats();
      logprobs.dispose();
      let at = 0;
      return part.flatMap(({ solutions }) =>
        solutions.map(({ rows: own }) => {
          at += own.length;
          return Array.from(values.subarray(at - own.length, at));
        }),
      );
    };
    return (await overGroups(decoder.device, parts, score, { signal }))?.flat();
  }
}
