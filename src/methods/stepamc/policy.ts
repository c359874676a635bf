/** The policy stage of StepAMC: the solutions of each rollout batch, and the plug-ins of the loop. */
import { selectionOf } from '../../data/rare-class.js';
import { weakNetwork } from '../../eval/reports/failure-signs.js';
import { type BatchSchedule, scheduleBatches } from '../../sequences/batching.js';
import { warn } from '../../terminal/log.js';
import { AdamW } from '../../train/adamw.js';
import { ClippedObjective } from '../../train/policy/objective.js';
import { fewMiniBatches, policyStage } from '../../train/policy/stage.js';
import { withHeadRate } from '../../train/roles/value-head.js';
import type { OpenTraining, TrainingStage } from '../../train/stage.js';
import { verdictAdvantage } from './advantage.js';
import { VerdictConstraint } from './constraint.js';
import { questionPieces } from './pieces.js';
import { isAsked } from './questions.js';
import { usualReasonLength } from './reason-length.js';
import type { RewardData } from './reward/data.js';
import { judgeByNetwork } from './reward/judge.js';
import { readsReasons, unitsOfQuestions } from './reward/reasons.js';
import { labelRewards, NetworkRewards } from './rewards.js';
import { type Question, verdictRollouts } from './rollout.js';
import type { StepAmcRun } from './run.js';
import { answerMetrics, rolloutSamples } from './samples.js';

/** XORed into the seed of sampling and mini-batch order, to differ from the warm-up's. */
const POLICY_SEED = 0x9907;

/** @param network the reward network's data; without it, rewards come from the labels */
export function scpoStage(
  open: StepAmcRun,
  network: RewardData | undefined,
  validate: OpenTraining['validate'],
): TrainingStage {
  const { config, data, roles } = open;
  const { verdict_ppo: ppo, reward_network: networkSettings, constraint, ablation } = config;
  const { tokenizer } = data;
  const sequences = data.sequences.train;
  const microBatchTokens = open.microBatchTokens('ppo');
  const iterations = rolloutBatches(open);
  const seed = policySeed(config.run);
  if (ppo.kl_in === 'loss' && ppo.kl_estimator === 'k1' && ppo.kl_coef > 0) {
    warn(
      'verdict_ppo.kl_estimator k1 in the loss has no gradient in expectation, so it does not hold the policy near the ' +
        'reference; use k3 or k2, or verdict_ppo.kl_in: reward',
    );
  }
  const few = fewMiniBatches(
    { settings: ppo, iterations },
    { key: 'verdict_ppo.num_mini_batches', noun: 'solutions' },
  );
  if (few !== undefined) warn(few);
  return policyStage<Question>({
    name: 'ppo',
    // In the reward the estimator is always d; that of the section applies to the loss.
    settings: { ...ppo, kl_estimator: 'k1' },
    iterations,
    batching: { 'ppo.solutions': sequences.length },
    expectedTokens: () => policyTokens(open) + (network ? jointTokens(open, network) : 0),
    trains: roles.policyParameters,
    optimizer: () => new AdamW(roles.policyParameters, withHeadRate(ppo)),
    parts: (_steps, kl) => ({
      rollouts: verdictRollouts({
        roles,
        template: tokenizer.template,
        tailIds: tokenizer.tailIds,
        tokenizer: tokenizer.tokenizer,
        settings: ppo,
        sequences,
        microBatchTokens,
        cacheBytes: open.cacheBytes,
        seed,
      }),
      rewards: network
        ? new NetworkRewards({
            roles,
            ppo,
            network: networkSettings,
            sequences: network.sequences,
            unitsAmong: network.units,
            reasoned: readsReasons(open) ? unitsOfQuestions(open) : undefined,
            microBatchTokens,
            iterations: iterations.batches.length,
            maxSkipped: config.run.max_skipped_steps,
          })
        : labelRewards(ppo),
      advantage: verdictAdvantage(roles.decoder.device, ppo),
      objective: new ClippedObjective({
        ...{ ...roles, kl, microBatchTokens },
        trains: [roles.policyParameters],
        critic: { head: roles.valueHead },
        // A sum over the tokens of each answer, as the constraint has one word of each: a mean over tokens would weigh
        // reinforcement less the longer reasons are.
        settings: { ...ppo, loss_type: 'dr_grpo' },
        ratio: 'token',
        longest: 1,
        pieces: (questions) => questionPieces(questions, { sequences, tokenizer }),
        own: new VerdictConstraint({
          constraint,
          constrained: !ablation.no_constraint,
          template: tokenizer.template,
        }),
      }),
    }),
    seed,
    best: selectionOf(config.eval_verdicts.metric_for_best_model, data.labels),
    begin: () => roles.keepReference(),
    warn: network && validate && (() => warnOfNetwork(open, validate)),
    validate,
    describe: answerMetrics,
    onRollout: (questions, iteration) => {
      for (const sample of rolloutSamples(questions, data, iteration)) open.run.samples.append(sample);
    },
  });
}

/** Says before the policy learns from the network that the network judges worse than what it is to teach. */
async function warnOfNetwork(
  open: StepAmcRun,
  validate: NonNullable<OpenTraining['validate']>,
): Promise<void> {
  const { signal } = new AbortController();
  const network = await judgeByNetwork(open, 'validation', signal);
  const warmUp = await validate(signal);
  if (!network || !warmUp || network.judged.length === 0) return;
  const sentence = weakNetwork(network.report.metrics, warmUp as { f1_macro: number });
  if (sentence) warn(`on the validation steps ${sentence}`);
}

/** Tokens of all forward and backward passes of a network that learns from every rollout batch. */
function jointTokens(open: StepAmcRun, network: RewardData): number {
  if (open.config.reward_network.update !== 'joint') return 0;
  return [...rolloutBatches(open).batches].reduce((sum, items) => {
    const units = network.units(items);
    const paired = units.some(({ pairs }) => pairs.length > 0);
    return sum + (paired ? units.reduce((tokens, unit) => tokens + unit.tokens, 0) : 0);
  }, 0);
}

/** Tokens of all forward and backward passes of the policy. The reasons that it will write are taken to be as long as those of the data. */
export function policyTokens(open: Pick<StepAmcRun, 'config' | 'data'>): number {
  const { train } = open.data.sequences;
  const usual = usualReasonLength(train);
  const lengthOf = (item: number) => {
    const { ids, solution } = train.get(item);
    const { steps } = open.config.verdict_ppo;
    const without = solution.verdicts.filter(
      ({ label, rationale }) => rationale === undefined && isAsked(steps, label),
    );
    return ids.length + usual * without.length;
  };
  const tokens = [...rolloutBatches(open).batches].flat().reduce((sum, item) => sum + lengthOf(item), 0);
  return tokens * open.config.verdict_ppo.num_ppo_epochs;
}

/** The solutions of each rollout batch. */
function rolloutBatches({
  config: { verdict_ppo: ppo, run },
  data,
}: Pick<StepAmcRun, 'config' | 'data'>): BatchSchedule {
  const sequences = data.sequences.train;
  const questions = Array.from(
    sequences,
    ({ verdicts }) => verdicts.filter(({ label }) => isAsked(ppo.steps, label)).length,
  );
  return scheduleBatches(
    questions.flatMap((count, i) => (count > 0 ? [i] : [])),
    {
      epochs: ppo.num_train_epochs,
      maxBatches: ppo.max_iterations > 0 ? ppo.max_iterations : undefined,
      seed: policySeed(run),
      sizeOf: (i) => questions[i] as number,
      tokensOf: (i) => sequences.get(i).ids.length,
      batchSize: ppo.rollout_batch,
    },
  );
}

function policySeed({ seed }: { readonly seed: number }): number {
  return (seed ^ POLICY_SEED) >>> 0;
}
