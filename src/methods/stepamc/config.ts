// `method: stepamc`: how it is configured.
import { z } from 'zod';
import { data, prompt } from '../../config/data.js';
import { evaluation, verdictEvaluation } from '../../config/evaluation.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import { type Conflict, conflict, type MethodSchema } from '../../config/schema.js';
import { verdictSettings } from '../../scoring/settings.js';
import { sft } from '../sft/config.js';
import {
  ablation,
  baseline,
  compareWith,
  constraint,
  frn,
  pseudoLabels,
  sftContinued,
  verdictDpo,
  verdictPpo,
} from './sections.js';

const schema = z.strictObject({
  method: z.literal('stepamc').describe('The training method.'),
  model,
  lora,
  data,
  prompt,
  sft,
  frn,
  verdict_ppo: verdictPpo,
  constraint,
  ablation,
  baseline,
  compare_with: compareWith,
  sft_continued: sftContinued,
  verdict_dpo: verdictDpo,
  pseudo_labels: pseudoLabels,
  run,
  eval: evaluation,
  eval_verdicts: verdictEvaluation,
});

export type StepAmcRunConfig = z.output<typeof schema>;
export type FrnConfig = StepAmcRunConfig['frn'];
export type PpoConfig = StepAmcRunConfig['verdict_ppo'];
export type ConstraintConfig = StepAmcRunConfig['constraint'];

export const stepAmcConfig: MethodSchema<StepAmcRunConfig, z.input<typeof schema>> = {
  schema,
  sections(config) {
    const { sft, frn, verdict_ppo: ppo, verdict_dpo: dpo, sft_continued, pseudo_labels, baseline } = config;
    return {
      sft,
      ...(baseline === 'none' ? { ppo } : {}),
      ...(hasNetwork(config) ? { frn } : {}),
      ...(baseline === 'dpo' ? { dpo } : {}),
      ...(baseline === 'pseudo_labels' ? { pseudo_labels } : {}),
      ...(baseline === 'sft_continued' || comparesWithContinued(config) ? { sft_continued } : {}),
    };
  },
  conflicts,
  judge(config, saved) {
    const words = verdictSettings(config);
    if (saved !== 'reward') return words;
    return { ...words, kind: 'reward_network', threshold: 0.5, pair_mode: config.frn.pair_mode };
  },
};

/** Whether a reward network is trained. */
export function hasNetwork({
  baseline,
  ablation,
  pseudo_labels,
}: Pick<StepAmcRunConfig, 'baseline' | 'ablation' | 'pseudo_labels'>): boolean {
  if (baseline === 'pseudo_labels') return pseudo_labels.by !== 'sft';
  return baseline === 'none' && !ablation.no_frn;
}

/** Whether the run trains its warm-up, and does not begin with one. */
export const hasWarmUp = ({ sft }: Pick<StepAmcRunConfig, 'sft'>): boolean => sft.num_train_epochs > 0;

/** Centring of scores, with `auto` resolved. */
export function centering({
  center,
  pair_mode,
}: Pick<FrnConfig, 'center' | 'pair_mode'>): Exclude<FrnConfig['center'], 'auto'> {
  if (center !== 'auto') return center;
  return pair_mode === 'label' ? 'pair_mean' : 'running';
}

/** Whether training steps without a label are of use. */
export function usesUnlabelled({
  baseline,
  verdict_ppo,
}: Pick<StepAmcRunConfig, 'baseline' | 'verdict_ppo'>): boolean {
  return baseline === 'pseudo_labels' || verdict_ppo.steps !== 'labelled';
}

/** Whether continued SFT trains beside StepAMC; with a baseline, nothing does. */
export function comparesWithContinued({
  baseline,
  compare_with,
}: Pick<StepAmcRunConfig, 'baseline' | 'compare_with'>): boolean {
  return baseline === 'none' && compare_with.includes('sft_continued');
}

function* conflicts(config: StepAmcRunConfig): Generator<Conflict> {
  const {
    model,
    data,
    constraint,
    baseline,
    ablation,
    frn,
    verdict_ppo: ppo,
    prompt,
    pseudo_labels,
  } = config;
  if (typeof model.base !== 'string')
    yield conflict(
      'model.base',
      'method "stepamc" needs a trained base: name one, or pretrain one with method "pretrain" first',
    );
  const { lo, hi, init, mode } = constraint.alpha;
  if (mode === 'learnable_clamped' && !(lo < init && init < hi))
    yield conflict(
      'constraint.alpha.init',
      `constraint.alpha.init (${init}) must lie between lo (${lo}) and hi (${hi})`,
    );
  if (prompt.response_format === 'rationale_then_verdict' && baseline === 'dpo')
    yield conflict(
      'baseline',
      'baseline "dpo" compares the two words alone; with prompt.response_format "rationale_then_verdict" use another',
    );
  if (prompt.response_format === 'rationale_then_verdict' && baseline === 'pseudo_labels')
    yield conflict(
      'baseline',
      'baseline "pseudo_labels" gives steps a label and no reason, and with prompt.response_format ' +
        '"rationale_then_verdict" nothing is learned from a label without a reason; use another, or response_format "verdict"',
    );
  if (prompt.response_format === 'rationale_then_verdict' && ppo.rollout === 'enumerate')
    yield conflict(
      'verdict_ppo.rollout',
      'verdict_ppo.rollout "enumerate" scores the two words alone; with prompt.response_format "rationale_then_verdict" use "sample"',
    );
  if (frn.pair_mode === 'step' && frn.center === 'pair_mean')
    yield conflict(
      'frn.center',
      'frn.center "pair_mean" needs a score of each verdict, and frn.pair_mode "step" gives a step one score, whose zero is ' +
        'arbitrary; use "running"',
    );
  if (frn.pair_mode === 'step' && baseline === 'pseudo_labels' && pseudo_labels.by !== 'sft')
    yield conflict(
      'pseudo_labels.by',
      `pseudo_labels.by "${pseudo_labels.by}" needs the probability that a step is right, and a network of frn.pair_mode ` +
        '"step" only tells which step is better; use frn.pair_mode "label", or pseudo_labels.by "sft"',
    );
  if (ablation.no_frn && ppo.steps !== 'labelled')
    yield conflict(
      'verdict_ppo.steps',
      `verdict_ppo.steps "${ppo.steps}" needs rewards for steps without a label, and ablation.no_frn takes rewards from the labels`,
    );
  if (usesUnlabelled(config)) {
    const [user, instead] =
      baseline === 'pseudo_labels'
        ? ['baseline "pseudo_labels" labels', 'another baseline']
        : [`verdict_ppo.steps "${ppo.steps}" judges`, 'verdict_ppo.steps "labelled"'];
    if (data.split_unit === 'sample')
      yield conflict(
        'data.split_unit',
        `${user} steps without a label, and with data.split_unit "sample" those are steps of the validation and test parts too; ` +
          `use split_unit "problem" or ${instead}`,
      );
    if (data.balance !== 'none')
      yield conflict(
        'data.balance',
        `${user} steps without a label, and those are also the ones whose label data.balance "${data.balance}" took away; ` +
          `use balance "none" (sft.class_weight weighs the classes) or ${instead}`,
      );
  }
  if (baseline !== 'none' && (ablation.no_frn || ablation.no_scpn))
    yield conflict(
      'ablation',
      `ablation switches off parts of StepAMC, and baseline "${baseline}" has none of them; choose one of the two`,
    );
}
