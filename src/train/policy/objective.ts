/**
 * The objective of every online method: clipped ratios of tokens or of whole answers, KL, entropy and value, and a term of the
 * method's own, such as StepAMC's constraint. Means are over the whole mini-batch, however it is cut into micro-batches.
 */
import type { TrainableParameters } from '../../autograd/parameters.js';
import { ratio } from '../../eval/statistics/metrics.js';
import type { Decoder, LinearHead, Role } from '../../models/decoder.js';
import {
  type KlEstimator,
  type PpoOptions,
  type PpoStatistic,
  ppo,
  type Surrogate,
} from '../../objectives/ppo.js';
import type { Objective } from '../../objectives/statistics.js';
import { spanSum } from '../../ops/advantage.js';
import type { Tensor } from '../../runtime/tensor.js';
import {
  type ForwardSequence,
  type HiddenStates,
  hiddenStates,
  logprobsAt,
  scalarsAt,
} from '../../sequences/forward.js';
import type { AnswerRow } from '../../sequences/sequence.js';
import { accumulate, balanceOf, type LossTerm, totalLoss } from '../accumulate.js';
import type { Metrics } from '../stage.js';
import type { KlControl } from './kl.js';
import { mean } from './metrics.js';
import type {
  Credit,
  CreditedGroup,
  Group,
  Keeps,
  OwnOptimizer,
  PolicyGradients,
  PolicyObjective,
} from './records.js';

type Credited<G extends Group> = CreditedGroup<G>['answers'][number];

/** One sequence of a mini-batch. */
export interface Piece<G extends Group> {
  readonly sequence: ForwardSequence;
  /** The answers whose tokens `rows` predict, in order. */
  readonly answers: readonly Credited<G>[];
  readonly rows: readonly AnswerRow[];
}

/** The clipped ratio: that of each token, of an answer's probability, or of the geometric mean over its tokens. */
export type RatioOf = 'token' | 'answer' | 'answer_mean';

/** The weight of a token; see {@link tokenWeights}. */
export type LossType = 'grpo' | 'dapo' | 'dr_grpo';

interface ObjectiveSettings {
  readonly temperature: number;
  /** The ratio counts from 1 − this, up to 1 + `cliprange_high` or, without one, 1 + this. */
  readonly cliprange: number;
  readonly cliprange_high?: number;
  readonly kl_estimator: KlEstimator;
  readonly entropy_coef: number;
  readonly vf_coef: number;
  readonly cliprange_value: number;
  readonly loss_type: LossType;
  /** τ of the surrogate `sapo`. */
  readonly sapo_temperature_pos?: number;
  readonly sapo_temperature_neg?: number;
  readonly old_logprobs: 'rescore' | 'sampler';
  /** Steps at the start that train the critic alone. Default 0. */
  readonly critic_warmup?: number;
  /** Mean k3 per token from the policy that sampled, above which no more is learned of a rollout batch; 0: no limit. */
  readonly kl_stop?: number;
}

/** Factors of the total loss. */
export interface LossWeights {
  readonly policy: number;
  readonly value: number;
  /** Factor of the method's own term. */
  readonly own: number;
}

/**
 * A term of a method's own, on the hidden states of the policy. `Counts`: counts of the whole mini-batch that it needs.
 */
export interface OwnTerm<G extends Group, P extends Piece<G>, Name extends string, Counts> extends Keeps {
  /** Name of its loss in messages. */
  readonly name: string;
  weights(): LossWeights;
  count(pieces: readonly P[]): Counts;
  /** Undefined where a micro-batch has nothing to say. */
  loss(states: HiddenStates, pieces: readonly P[], counts: Counts): Objective<Name> | undefined;
  /** Logs the micro-batches. */
  measure(
    parts: readonly { readonly loss: number; readonly statistics: Readonly<Record<Name, number>> }[],
  ): Metrics;
  /** Called after an applied step. `own` is undefined where no micro-batch had the term. */
  applied(losses: { readonly policy: number; readonly own: number | undefined }): void;
}

export interface PolicyObjectiveOptions<G extends Group, P extends Piece<G>, Name extends string, Counts> {
  readonly decoder: Decoder;
  readonly policy: Role;
  /** Parameters whose gradients the objective sets. */
  readonly trains: readonly TrainableParameters[];
  /** A head on the policy's hidden states, or on those of a role of its own. */
  readonly critic?:
    | {
        readonly head: LinearHead;
        readonly own?: { readonly decoder: Decoder; readonly role: Role } | undefined;
      }
    | undefined;
  /** Optimizers of parameters other than the policy's. */
  readonly optimizers?: Readonly<Record<string, OwnOptimizer>>;
  readonly settings: ObjectiveSettings;
  readonly ratio: RatioOf;
  /** The loss of ratios of tokens. Default `clip`. */
  readonly surrogate?: Surrogate | undefined;
  readonly kl: KlControl;
  readonly pieces: (groups: readonly CreditedGroup<G>[]) => readonly P[];
  /** Max tokens of an answer, the constant that `dr_grpo` divides by. */
  readonly longest: number;
  readonly microBatchTokens: number;
  readonly own?: OwnTerm<G, P, Name, Counts>;
}

const PLAIN: LossWeights = { policy: 1, value: 1, own: 0 };

type Term<Name extends string> = LossTerm<PpoStatistic | Name> & {
  readonly of: 'tokens' | 'answers' | 'own';
};

export class ClippedObjective<
  G extends Group,
  P extends Piece<G> = Piece<G>,
  Name extends string = never,
  Counts = unknown,
> implements PolicyObjective<G>
{
  readonly optimizers: Readonly<Record<string, OwnOptimizer>>;

  constructor(private readonly options: PolicyObjectiveOptions<G, P, Name, Counts>) {
    this.optimizers = options.optimizers ?? {};
  }

  async gradients(groups: readonly CreditedGroup<G>[], step: number): Promise<PolicyGradients<G>> {
    const { decoder, policy, trains, critic, settings, own, microBatchTokens } = this.options;
    const pieces = this.options.pieces(groups);
    const weights = own?.weights() ?? PLAIN;
    const warming = critic !== undefined && step < (settings.critic_warmup ?? 0);
    const statesOf = (group: readonly P[]) =>
      hiddenStates(
        decoder,
        policy,
        group.map(({ sequence }) => sequence),
      );
    const parts = await accumulate(
      pieces,
      {
        device: decoder.device,
        microBatchTokens,
        sizeOf: ({ sequence }) => sequence.ids.length,
        normaliser: () => ({ weightOf: tokenWeights(groups, this.options), counts: own?.count(pieces) }),
        trains,
        scope: 'policy',
        // While the critic warms up, only its head on the shared trunk has gradients.
        before: (group) => (warming ? statesOf(group) : undefined),
      },
      (group, { weightOf, counts }, before): Term<Name>[] => {
        const states = before ?? statesOf(group);
        const clipped = this.clipped(states, group, { weightOf, weights, warming });
        const said = own?.loss(states, group, counts as Counts);
        return said ? [...clipped, { ...said, weight: weights.own, of: 'own' }] : clipped;
      },
    );
    const of = (which: Term<Name>['of']) => parts.filter(({ term }) => term.of === which);
    const [tokens, said] = [of('tokens'), of('own')];
    const metrics = this.metricsOf(tokens, this.options.ratio === 'token' ? tokens : of('answers'));
    const { value_loss: value = 0, old_kl_k3: moved = 0 } = metrics;
    const scaled = settings.vf_coef * value;
    const learned = totalLoss(parts.filter(({ term }) => term.of !== 'own')) - valueFactor(weights) * scaled;
    const { kl_stop: stop = 0 } = settings;
    const scored = scoredGroups(groups, tokens);
    return {
      ...(scored ? { scored } : {}),
      loss: parts.reduce((sum, { loss, term: { weight = 1 } }) => sum + weight * loss, 0),
      terms: {
        policy_loss: learned,
        ...(critic ? { value_loss: scaled } : {}),
        ...(own && said.length > 0 ? { [own.name]: totalLoss(said) } : {}),
      },
      metrics: {
        ...metrics,
        ...own?.measure(said),
        ...balanceOf(parts),
        ...(warming ? { critic_warmup: 1 } : {}),
      },
      ...(warming ? { policyWaits: true } : {}),
      shown: { kl: metrics.kl_k3 ?? 0 },
      tokens: pieces.reduce((sum, { sequence }) => sum + sequence.ids.length, 0),
      ...(stop > 0 && moved > stop ? { enough: true } : {}),
    };
  }

  applied({ terms }: PolicyGradients): void {
    const { own } = this.options;
    own?.applied({ policy: terms.policy_loss as number, own: terms[own.name] });
  }

  state(): unknown {
    return this.options.own?.state?.();
  }

  restore(state: unknown): void {
    this.options.own?.restore?.(state);
  }

  private clipped(
    states: HiddenStates,
    pieces: readonly P[],
    {
      weightOf,
      weights,
      warming,
    }: {
      readonly weightOf: (answer: Credited<G>) => number;
      readonly weights: LossWeights;
      readonly warming: boolean;
    },
  ): Term<Name>[] {
    const { decoder, critic, settings, ratio: ratioOf, kl } = this.options;
    const { device } = decoder;
    const { temperature, entropy_coef: entropyCoef, old_logprobs } = settings;
    const answers = pieces.flatMap((piece) => piece.answers);
    const rows = pieces.map((piece) => piece.rows);
    const { logprobs, entropy } = logprobsAt(states, rows, {
      temperature,
      entropyGradient: entropyCoef !== 0,
    });
    const upload = (of: (answer: Credited<G>) => readonly number[]) =>
      device.tensor(Float32Array.from(answers.flatMap(of)));
    const spread = (of: (answer: Credited<G>) => number) =>
      upload((answer) => answer.tokens.map(() => of(answer)));
    const values = critic && this.values(states, pieces);
    const hasReference = answers.some(({ refLogprobs }) => refLogprobs.length > 0);
    const isScored = answers.every(({ oldLogprobs }) => oldLogprobs.length > 0);
    const bySampler = old_logprobs === 'sampler' && answers.every((own) => own.samplerLogprobs.length > 0);
    const old =
      bySampler || isScored ? upload((a) => (bySampler ? a.samplerLogprobs : a.oldLogprobs)) : logprobs;
    const clip = { clipLow: settings.cliprange, clipHigh: settings.cliprange_high ?? settings.cliprange };
    const byToken = ppo(
      {
        logprobs,
        oldLogprobs: old,
        ...(hasReference ? { refLogprobs: upload(({ refLogprobs }) => refLogprobs) } : {}),
        // The critic alone learns, or the ratio is that of whole answers, below.
        advantages: warming || ratioOf !== 'token' ? spread(() => 0) : upload(correctedAdvantages),
        weights: spread(weightOf),
        entropy,
        ...(values
          ? {
              values,
              oldValues: upload((answer) => answer.values),
              returns: upload(({ returns }) => returns),
            }
          : {}),
      },
      {
        ...clip,
        ...this.surrogate(),
        klCoef: warming || !hasReference ? 0 : kl.inLoss,
        klEstimator: settings.kl_estimator,
        entropyCoef: warming ? 0 : entropyCoef,
        valueCoef: settings.vf_coef * valueFactor(weights),
        valueClip: settings.cliprange_value,
      },
    );
    const weight = weights.policy;
    const tokens: Term<Name> = {
      ...byToken,
      weight,
      of: 'tokens',
      ...(isScored ? {} : { values: logprobs }),
    };
    if (ratioOf === 'token') return [tokens];
    const ends: number[] = [0];
    for (const answer of answers) ends.push((ends.at(-1) as number) + answer.tokens.length);
    const bounds = answers.flatMap((_, i) => [ends[i] as number, ends[i + 1] as number]);
    const spans = device.tensor(Int32Array.from(bounds), [answers.length, 2]);
    const whole = (of: Tensor) => spanSum(of, spans, { mean: ratioOf === 'answer_mean' });
    const one = (of: (answer: Credited<G>) => number) => device.tensor(Float32Array.from(answers, of));
    const byAnswer = ppo(
      {
        logprobs: whole(logprobs),
        oldLogprobs: whole(old),
        advantages: one((answer) => mean(correctedAdvantages(answer))),
        weights: one((answer) => weightOf(answer) * answer.tokens.length),
      },
      clip,
    );
    return [tokens, { ...byAnswer, weight, of: 'answers' }];
  }

  private surrogate(): Pick<PpoOptions, 'surrogate' | 'temperaturePositive' | 'temperatureNegative'> {
    const { surrogate, settings } = this.options;
    if (surrogate !== 'sapo') return surrogate ? { surrogate } : {};
    const { sapo_temperature_pos: positive = 1, sapo_temperature_neg: negative = 1.05 } = settings;
    return { surrogate, temperaturePositive: positive, temperatureNegative: negative };
  }

  private values(states: HiddenStates, pieces: readonly P[]): Tensor {
    const { own, head } = this.options.critic as NonNullable<typeof this.options.critic>;
    const sequences = pieces.map(({ sequence }) => sequence);
    const seen = own ? hiddenStates(own.decoder, own.role, sequences) : states;
    return scalarsAt(
      seen,
      head,
      pieces.map(({ rows }) => rows.map(({ row }) => row)),
    );
  }

  private metricsOf(tokens: readonly Part[], ratios: readonly Part[]): Record<string, number> {
    const sum = (of: readonly Part[], name: PpoStatistic) =>
      of.reduce((all, { statistics }) => all + statistics.weight * statistics[name], 0);
    // Weights need not add up to 1: those of dr_grpo do not, nor do those of answers that are all masked.
    const mean = (of: readonly Part[], name: PpoStatistic) =>
      ratio(
        sum(of, name),
        of.reduce((all, { statistics }) => all + statistics.weight, 0),
      );
    const hasReference = tokens.some(({ group }) =>
      group.some(({ answers }) => answers.some(({ refLogprobs }) => refLogprobs.length > 0)),
    );
    return {
      policy_loss: sum(ratios, 'policy_loss'),
      ...(this.options.critic
        ? {
            value_loss: sum(tokens, 'value_loss'),
            value_clip_fraction: mean(tokens, 'value_clip_fraction'),
          }
        : {}),
      ratio_mean: mean(ratios, 'ratio_mean'),
      ratio_max: Math.max(...ratios.map(({ statistics }) => statistics.ratio_max)),
      ...(this.options.surrogate === 'sapo' ? {} : { clip_fraction: mean(ratios, 'clip_fraction') }),
      entropy: mean(tokens, 'entropy'),
      old_kl_k3: mean(tokens, 'old_kl_k3'),
      ...(hasReference ? { kl_k1: mean(tokens, 'kl_k1'), kl_k3: mean(tokens, 'kl_k3') } : {}),
    };
  }
}

interface Part {
  readonly group: readonly Pick<Piece<Group>, 'answers'>[];
  readonly statistics: Readonly<Record<PpoStatistic, number>>;
}

/** The factor of importance sampling, a constant ≥ 0, multiplies the policy loss as it multiplies the advantage. */
function correctedAdvantages({ advantages, importance }: Pick<Credit, 'advantages' | 'importance'>) {
  return importance ? advantages.map((advantage, t) => advantage * (importance[t] as number)) : advantages;
}

/** Factor of the value loss inside an objective that is itself weighted by `policy`. */
function valueFactor({ policy, value }: LossWeights): number {
  return policy === 0 ? 0 : value / policy;
}

/** Weight of an answer's token in the mean over the mini-batch; answers of share 0 have weight 0. */
function tokenWeights<G extends Group>(
  groups: readonly CreditedGroup<G>[],
  {
    settings,
    ratio,
    longest,
  }: Pick<PolicyObjectiveOptions<G, Piece<G>, never, unknown>, 'settings' | 'ratio' | 'longest'>,
): (answer: Credited<G>) => number {
  const answers = groups.flatMap((group) => group.answers);
  const mass = answers.reduce((sum, { share }) => sum + share, 0) || 1;
  const tokens = answers.reduce((sum, answer) => sum + answer.share * answer.tokens.length, 0) || 1;
  if (ratio !== 'token' || settings.loss_type === 'grpo')
    return ({ share, tokens: own }) => share / (mass * own.length);
  if (settings.loss_type === 'dr_grpo') return ({ share }) => share / (mass * longest);
  return ({ share }) => share / tokens;
}

/** The groups with the log-probs of the update's forward, where the rollout has none. */
function scoredGroups<G extends Group>(
  groups: readonly CreditedGroup<G>[],
  parts: readonly { readonly group: readonly Piece<G>[]; readonly values: Float32Array }[],
): CreditedGroup<G>[] | undefined {
  const found = new Map<Credited<G>, number[]>();
  for (const { group, values } of parts) {
    let at = 0;
    if (values.length === 0) continue;
    for (const answer of group.flatMap(({ answers }) => answers)) {
      found.set(answer, Array.from(values.subarray(at, at + answer.tokens.length)));
      at += answer.tokens.length;
    }
  }
  if (found.size === 0) return undefined;
  return groups.map((group) => ({
    ...group,
    answers: group.answers.map((answer) => ({
      ...answer,
      oldLogprobs: found.get(answer) ?? answer.oldLogprobs,
    })),
  }));
}
