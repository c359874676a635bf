/** The objective of policy optimisation on solutions: clipped ratios of tokens or of whole solutions, KL, entropy and value. */
import { Tape } from '../../autograd/tape.js';
import { ratio } from '../../eval/metrics.js';
import { type PpoStatistic, ppo } from '../../objectives/ppo.js';
import { type Objective, readStatistics } from '../../objectives/statistics.js';
import { spanSum } from '../../ops/advantage.js';
import type { Tensor } from '../../runtime/tensor.js';
import { groupBySize } from '../../sequences/batching.js';
import { type HiddenStates, hiddenStates, logprobsAt, scalarsAt } from '../../sequences/forward.js';
import { AdamW, adamSettings } from '../../train/adamw.js';
import type { KlControl } from '../../train/policy/kl.js';
import type { OwnOptimizer, PolicyGradients, PolicyObjective } from '../../train/policy/records.js';
import { learningRateAt } from '../../train/schedule.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import { type PpoRoles, VALUE_HEAD } from './roles.js';
import type { CreditedSolutions, SolutionGroup } from './rollout.js';
import { type AnsweredPrompt, answeredPrompts } from './sequences.js';
import { countsSolutions, type PpoSettings } from './settings.js';

export interface SolutionObjectiveOptions {
  readonly roles: Pick<PpoRoles, 'decoder' | 'policy' | 'policyParameters' | 'critic'>;
  readonly settings: PpoSettings;
  readonly kl: KlControl;
  readonly promptOf: (item: number) => SolutionPrompt;
  readonly temperature: number;
  /** Most tokens of a solution, the constant that `dr_grpo` divides by. */
  readonly longest: number;
  readonly microBatchTokens: number;
  /** Steps of the stage. */
  readonly steps: number;
}

type CreditedAnswer = CreditedSolutions['answers'][number];

interface Piece {
  readonly sequence: AnsweredPrompt;
  readonly answers: readonly CreditedAnswer[];
}

/** Means are over the whole mini-batch, however it is divided into micro-batches. */
export class SolutionObjective implements PolicyObjective<SolutionGroup> {
  readonly optimizers: Readonly<Record<string, OwnOptimizer>>;

  constructor(private readonly options: SolutionObjectiveOptions) {
    const { roles, settings, steps } = options;
    const { critic } = roles;
    const rate = critic?.own ? settings.critic_learning_rate : settings.learning_rate;
    this.optimizers = critic
      ? {
          critic: {
            optimizer: new AdamW(critic.trained, {
              ...adamSettings(settings),
              rateOf: (name) => (name.startsWith(VALUE_HEAD) ? settings.head_rate : 1),
            }),
            rateAt: (step) =>
              learningRateAt(step, {
                ...settings,
                learning_rate: rate,
                totalSteps: steps,
              }),
          },
        }
      : {};
  }

  async gradients(
    groups: readonly CreditedSolutions[],
    step: number,
  ): Promise<PolicyGradients<SolutionGroup>> {
    const { roles, settings, microBatchTokens } = this.options;
    const { device } = roles.decoder;
    roles.policyParameters.zeroGrads();
    roles.critic?.own?.parameters.zeroGrads();
    const pieces = this.pieces(groups);
    const weightOf = tokenWeight(groups, this.options);
    const warming = roles.critic !== undefined && step < settings.critic_warmup;
    const parts: Part[] = [];
    const found = new Map<CreditedAnswer, readonly number[]>();
    for (const batch of groupBySize(pieces, ({ sequence }) => sequence.ids.length, microBatchTokens)) {
      const tape = new Tape(device);
      const { objectives, scores } = device.scope(
        () => this.microBatch(tape, batch, weightOf, warming),
        'policy',
      );
      tape.backward(objectives.map(({ loss }) => [loss, 1]));
      tape.dispose();
      for (const objective of objectives) parts.push(await read(objective));
      if (scores) await readScores(scores, batch, found);
      await device.synchronize();
    }
    const { losses, metrics } = this.summarize(parts);
    const { kl_stop: stop } = settings;
    return {
      ...(found.size > 0 ? { scored: groups.map((group) => withScores(group, found)) } : {}),
      loss: losses.total,
      terms: { loss: losses.total },
      metrics: { ...metrics, ...(warming ? { critic_warmup: 1 } : {}) },
      ...(warming ? { policyWaits: true } : {}),
      shown: { kl: metrics.kl_k3 ?? 0 },
      tokens: pieces.reduce((sum, { sequence }) => sum + sequence.ids.length, 0),
      ...(stop > 0 && (metrics.old_kl_k3 ?? 0) > stop ? { enough: true } : {}),
    };
  }

  private pieces(groups: readonly CreditedSolutions[]): Piece[] {
    const { promptOf, settings, microBatchTokens } = this.options;
    return groups.flatMap(({ item, answers }) => {
      let at = 0;
      const tokens = answers.map((answer) => answer.tokens);
      const { branches } = settings;
      return answeredPrompts(promptOf(item).ids, item, tokens, { budget: microBatchTokens, branches }).map(
        (sequence) => {
          const begin = at;
          at += sequence.solutions.length;
          return { sequence, answers: answers.slice(begin, at) };
        },
      );
    });
  }

  /**
   * Losses of some sequences, and the log-probs of their answers where the rollout has none. While the critic warms up,
   * hidden states are computed outside the tape, so that of a shared trunk the head alone has gradients.
   */
  private microBatch(
    tape: Tape,
    pieces: readonly Piece[],
    weightOf: (answer: CreditedAnswer) => number,
    warming: boolean,
  ): { readonly objectives: Objective<PpoStatistic>[]; readonly scores?: Tensor } {
    const { roles, settings, kl, temperature } = this.options;
    const { decoder, policy, critic } = roles;
    const { device } = decoder;
    const sequences = pieces.map(({ sequence }) => sequence);
    const answers = pieces.flatMap((piece) => piece.answers);
    const rows = sequences.map(({ solutions }) => solutions.flatMap((solution) => solution.rows));
    const before = warming ? hiddenStates(decoder, policy, sequences) : undefined;
    return tape.run(() => {
      const states = before ?? hiddenStates(decoder, policy, sequences);
      const { entropy_coef: entropyCoef } = settings;
      const { logprobs, entropy } = logprobsAt(states, rows, {
        temperature,
        entropyGradient: entropyCoef !== 0,
      });
      const upload = (of: (answer: CreditedAnswer) => readonly number[]) =>
        device.tensor(Float32Array.from(answers.flatMap(of)));
      const hasReference = answers.some(({ refLogprobs }) => refLogprobs.length > 0);
      const isScored = answers.every(({ oldLogprobs }) => oldLogprobs.length > 0);
      const bySampler = settings.old_logprobs === 'sampler';
      const old =
        bySampler || isScored ? upload((a) => (bySampler ? a.samplerLogprobs : a.oldLogprobs)) : logprobs;
      const spread = (of: (answer: CreditedAnswer, t: number) => number) =>
        upload((answer) => answer.tokens.map((_, t) => of(answer, t)));
      const bySolution = countsSolutions(settings);
      const clip = { clipLow: settings.cliprange, clipHigh: settings.cliprange_high };
      const byToken = ppo(
        {
          logprobs,
          oldLogprobs: old,
          ...(hasReference ? { refLogprobs: upload(({ refLogprobs }) => refLogprobs) } : {}),
          // The critic alone learns, or the ratio is that of whole solutions, below.
          advantages: warming || bySolution ? spread(() => 0) : upload(({ advantages }) => advantages),
          weights: spread((answer) => weightOf(answer)),
          entropy,
          ...(critic
            ? {
                values: this.values(states, sequences),
                oldValues: upload(({ values }) => values),
                returns: upload(({ returns }) => returns),
              }
            : {}),
        },
        {
          ...clip,
          klCoef: warming || !hasReference ? 0 : kl.inLoss,
          klEstimator: settings.kl_estimator,
          entropyCoef: warming ? 0 : entropyCoef,
          valueCoef: settings.vf_coef,
          valueClip: settings.cliprange_value,
        },
      );
      const objectives = bySolution
        ? [byToken, this.ofSolutions(answers, logprobs, old, weightOf)]
        : [byToken];
      return { objectives, ...(isScored ? {} : { scores: logprobs }) };
    });
  }

  /** One ratio for each solution: of its probability (`rloo`), or of the geometric mean over its tokens (`gspo`). */
  private ofSolutions(
    answers: readonly CreditedAnswer[],
    logprobs: Parameters<typeof spanSum>[0],
    old: Parameters<typeof spanSum>[0],
    weightOf: (answer: CreditedAnswer) => number,
  ): Objective<PpoStatistic> {
    const { settings } = this.options;
    const { device } = logprobs;
    const ends: number[] = [0];
    for (const { tokens } of answers) ends.push((ends.at(-1) as number) + tokens.length);
    const spans = device.tensor(
      Int32Array.from(answers.flatMap((_, i) => [ends[i] as number, ends[i + 1] as number])),
      [answers.length, 2],
    );
    const mean = settings.algorithm === 'gspo';
    const one = (of: (answer: CreditedAnswer) => number) => device.tensor(Float32Array.from(answers, of));
    return ppo(
      {
        logprobs: spanSum(logprobs, spans, { mean }),
        oldLogprobs: spanSum(old, spans, { mean }),
        advantages: one(({ advantages }) => advantages[0] ?? 0),
        weights: one((answer) => weightOf(answer) * answer.tokens.length),
      },
      { clipLow: settings.cliprange, clipHigh: settings.cliprange_high },
    );
  }

  private values(states: HiddenStates, sequences: readonly AnsweredPrompt[]) {
    const { critic } = this.options.roles;
    if (!critic) throw new RangeError('there is no critic');
    const { own, head } = critic;
    const seen = own ? hiddenStates(own.decoder, own.role, sequences) : states;
    const rows = sequences.map(({ solutions }) =>
      solutions.flatMap((solution) => solution.rows.map(({ row }) => row)),
    );
    return scalarsAt(seen, head, rows);
  }

  private summarize(parts: readonly Part[]) {
    const { settings, roles } = this.options;
    const bySolution = countsSolutions(settings);
    // Of two objectives the second has the ratios.
    const tokens = parts.filter((_, i) => !bySolution || i % 2 === 0);
    const ratios = parts.filter((_, i) => !bySolution || i % 2 === 1);
    const sum = (of: readonly Part[], name: PpoStatistic) =>
      of.reduce((all, { statistics }) => all + statistics.weight * statistics[name], 0);
    // Weights need not add up to 1: those of dr_grpo do not, nor do those of solutions that are all masked.
    const mean = (of: readonly Part[], name: PpoStatistic) =>
      ratio(
        sum(of, name),
        of.reduce((all, { statistics }) => all + statistics.weight, 0),
      );
    const total = parts.reduce((all, { loss }) => all + loss, 0);
    return {
      losses: { total },
      metrics: {
        policy_loss: sum(ratios, 'policy_loss'),
        ratio_mean: mean(ratios, 'ratio_mean'),
        ratio_max: Math.max(...ratios.map(({ statistics }) => statistics.ratio_max)),
        clip_fraction: mean(ratios, 'clip_fraction'),
        entropy: mean(tokens, 'entropy'),
        old_kl_k3: mean(tokens, 'old_kl_k3'),
        ...(settings.reference === 'none'
          ? {}
          : { kl_k1: mean(tokens, 'kl_k1'), kl_k3: mean(tokens, 'kl_k3') }),
        ...(roles.critic
          ? {
              value_loss: sum(tokens, 'value_loss'),
              value_clip_fraction: mean(tokens, 'value_clip_fraction'),
            }
          : {}),
      } as Record<string, number>,
    };
  }
}

/** What a token of an answer counts in the mean over the mini-batch; answers of share 0 count nothing. */
function tokenWeight(
  groups: readonly CreditedSolutions[],
  { settings, longest }: Pick<SolutionObjectiveOptions, 'settings' | 'longest'>,
): (answer: CreditedAnswer) => number {
  const answers = groups.flatMap((group) => group.answers);
  const mass = answers.reduce((sum, { share }) => sum + share, 0) || 1;
  const tokens = answers.reduce((sum, answer) => sum + answer.share * answer.tokens.length, 0) || 1;
  if (countsSolutions(settings) || settings.loss_type === 'grpo')
    return ({ share, tokens: own }) => share / (mass * own.length);
  if (settings.loss_type === 'dr_grpo') return ({ share }) => share / (mass * longest);
  return ({ share }) => share / tokens;
}

/** Adds the log-probs of the answers of a micro-batch. */
async function readScores(
  scores: Tensor,
  pieces: readonly Piece[],
  found: Map<CreditedAnswer, readonly number[]>,
): Promise<void> {
  const values = await scores.readFloats();
  scores.dispose();
  let at = 0;
  for (const answer of pieces.flatMap(({ answers }) => answers)) {
    found.set(answer, Array.from(values.subarray(at, at + answer.tokens.length)));
    at += answer.tokens.length;
  }
}

function withScores(
  { answers, ...group }: CreditedSolutions,
  found: ReadonlyMap<CreditedAnswer, readonly number[]>,
): CreditedSolutions {
  return {
    ...group,
    answers: answers.map((answer) => ({ ...answer, oldLogprobs: found.get(answer) ?? answer.oldLogprobs })),
  };
}

interface Part {
  readonly loss: number;
  readonly statistics: Readonly<Record<PpoStatistic, number>>;
}

async function read({ loss, statistics }: Objective<PpoStatistic>): Promise<Part> {
  const [[value], found] = await Promise.all([loss.readFloats(), readStatistics(statistics)]);
  loss.dispose();
  statistics.values.dispose();
  return { loss: value as number, statistics: found };
}
