/** Groups metrics into plots, with a title and a description for each. */
import { grouped } from '../native/grouped.js';
import { VALIDATION } from '../run/metric-keys.js';
import { decimate, type Points } from './decimate.js';
import type { Column, MetricLog, Phase } from './metric-log.js';

/** A plot of metrics that have the same unit. */
interface PlotKind {
  readonly id: string;
  readonly title: string;
  readonly keys: readonly (string | RegExp)[];
  readonly about: string;
  /** Unit behind the numbers of the axis. */
  readonly unit?: 'percent' | 'bytes' | 'seconds' | 'per second';
  /** Below the others, folded: for a look when something is wrong. */
  readonly minor?: boolean;
}

const KINDS: readonly PlotKind[] = [
  {
    id: 'loss',
    title: 'Loss',
    keys: ['loss', 'validation_loss', 'nll'],
    about: 'What the optimizer minimises, in training and on validation data.',
  },
  {
    id: 'quality',
    title: 'Verdicts on validation steps',
    keys: ['f1_macro', 'balanced_accuracy', 'acc_pos', 'acc_neg', 'auc'].map((key) => VALIDATION + key),
    unit: 'percent',
    about: 'F1 macro, the recalls of both classes (acc_pos: right steps, acc_neg: wrong ones) and AUC.',
  },
  {
    id: 'accuracy',
    title: 'Accuracy',
    keys: [/^(validation\/)?(accuracy|pass_at_1|right)$/, /_accuracy$/],
    unit: 'percent',
    about: 'Share of answers, tokens or pairs that are right.',
  },
  {
    id: 'reward',
    title: 'Reward',
    keys: ['reward_mean', 'reward_min', 'reward_max', /^term_/, /^reward_(?!seconds|std|network)/],
    about: 'Mean, smallest and largest reward of a rollout batch, and what each source of rewards said.',
  },
  {
    id: 'spread',
    title: 'Spread of rewards',
    keys: ['reward_std'],
    about: 'Standard deviation over a rollout batch; near 0 there is nothing to learn from.',
  },
  {
    id: 'terms',
    title: 'Loss by term',
    keys: [
      'policy_loss',
      'value_loss',
      'constraint_loss',
      'constraint_positive',
      'constraint_negative',
      /_loss$/,
    ],
    about: 'The parts of the loss before they are weighed.',
  },
  {
    id: 'kl',
    title: 'KL divergence',
    keys: ['kl', 'kl_k1', 'kl_k3', 'old_kl_k3', 'kl_mean', 'reference_kl'],
    about:
      'Nats per token: k1 and k3 estimate how far the policy is from its reference, old_kl how far from the one that sampled.',
  },
  {
    id: 'alpha',
    title: 'α and the weight of the constraint',
    keys: ['alpha', 'constraint_weight', 'kl_coefficient'],
    about: 'The balance between reinforcement and the verdict constraint.',
  },
  {
    id: 'rollout',
    title: 'Answers of the policy',
    keys: [
      'rollout_acc_pos',
      'rollout_acc_neg',
      'rollout_invalid',
      'acc_pos',
      'acc_neg',
      'equal_groups',
      'repeated_steps',
      'truncated',
    ],
    unit: 'percent',
    about:
      'Shares over a rollout batch: right answers by class, unreadable ones, groups whose rewards are all equal. acc_pos and acc_neg are the mini-batch’s.',
  },
  {
    id: 'ratio',
    title: 'Probability ratios',
    keys: ['ratio_mean', 'ratio_max'],
    minor: true,
    about: 'New over old probability of the sampled tokens; 1 where nothing changed.',
  },
  {
    id: 'clipped',
    title: 'Clipped',
    keys: ['clip_fraction', 'value_clip_fraction'],
    unit: 'percent',
    minor: true,
    about: 'Share of tokens whose ratio or value left the clip range.',
  },
  {
    id: 'critic',
    title: 'Critic',
    keys: ['explained_variance', 'value_mean'],
    minor: true,
    about: 'Explained variance of the returns: 1 is perfect, 0 no better than their mean.',
  },
  {
    id: 'norm',
    title: 'Gradient norm',
    keys: ['grad_norm', /_grad_norm$/],
    minor: true,
    about: 'Before clipping.',
  },
  {
    id: 'rate',
    title: 'Learning rate',
    keys: ['learning_rate'],
    minor: true,
    about: 'After warm-up and decay.',
  },
  {
    id: 'ranks',
    title: 'Tokens per second of each process',
    keys: [/^rank_\d+_tokens_per_second$/],
    unit: 'per second',
    minor: true,
    about: 'Tokens that a process trained on or sampled, since the line before.',
  },
  {
    id: 'waited',
    title: 'Seconds that each process waited',
    keys: [/^rank_\d+_waited_seconds$/],
    unit: 'seconds',
    minor: true,
    about: 'For the others and for the bytes, since the line before.',
  },
  {
    id: 'speed',
    title: 'Tokens per second',
    keys: ['tokens_per_second'],
    unit: 'per second',
    minor: true,
    about: 'Tokens that passed forward and backward, of the logged step.',
  },
  {
    id: 'seconds',
    title: 'Seconds of a step',
    keys: [/_seconds$/],
    unit: 'seconds',
    minor: true,
    about: 'Sampling, rewards and update of the logged step.',
  },
  {
    id: 'memory',
    title: 'Peak memory',
    keys: ['peak_bytes'],
    unit: 'bytes',
    minor: true,
    about: 'Since the phase began.',
  },
];

/** No plot: counters, and what only says where a line stands. */
const SILENT = [
  /^best_/,
  'epoch',
  'tokens',
  'skipped',
  'iteration',
  'targets',
  'rows',
  'stopped_by_kl',
  'logged_seconds',
];

interface PlotSeries extends Points {
  readonly key: string;
}

export interface Plot extends Omit<PlotKind, 'keys' | 'minor'> {
  /** Unique on the page. */
  readonly id: string;
  readonly minor: boolean;
  /** The title of the x axis. */
  readonly x: string;
  /** The last step of the group, in the count of the x axis. */
  readonly steps: number;
  readonly series: readonly PlotSeries[];
}

/** Phases of one kind: `train-1` and `train-2` continue one another. */
export interface PhaseGroup {
  readonly name: string;
  readonly phases: readonly Phase[];
  readonly plots: readonly Plot[];
}

/** The plots of a log, by phase in the order of the run. */
export function curves(log: MetricLog): PhaseGroup[] {
  const groups = grouped(log.phases, ({ name }) =>
    name === 'test' ? undefined : name.replace(/[-_ ]?\d+$/, '') || name,
  );
  return [...groups].map(([name, phases]) => ({ name, phases, plots: plotsOf(name, phases) }));
}

function plotsOf(group: string, phases: readonly Phase[]): Plot[] {
  const left = new Set(phases.flatMap(({ columns }) => [...columns.keys()]));
  const take = (matches: (key: string) => boolean) => {
    const found = [...left].filter(matches);
    for (const key of found) left.delete(key);
    return found;
  };
  take((key) => SILENT.some((each) => matching(each, key)));
  const isRun = phases.length > 1;
  const steps = Math.max(
    0,
    ...phases.flatMap(({ columns }) => [...columns.values()].map((of) => stepsOf(of, isRun).at(-1) ?? 0)),
  );
  const plot = (kind: Omit<PlotKind, 'keys'>, keys: readonly string[]): Plot[] => {
    const series = keys.flatMap((key): PlotSeries[] => {
      const points = joined(phases, key);
      return points ? [{ key, ...points }] : [];
    });
    if (series.length === 0) return [];
    const x = isRun ? 'step of the run' : `step of ${group}`;
    return [{ ...kind, minor: kind.minor ?? false, id: `${group}/${kind.id}`, x, steps, series }];
  };
  const known = KINDS.flatMap(({ keys, ...kind }) => {
    const own = keys.flatMap((each) => take((key) => matching(each, key)));
    return plot(kind, own);
  });
  const others = [...left].flatMap((key) =>
    plot({ id: key, title: key.replace(VALIDATION, 'validation: '), about: '', minor: true }, [key]),
  );
  return [...known, ...others];
}

const matching = (pattern: string | RegExp, key: string) =>
  typeof pattern === 'string' ? pattern === key : pattern.test(key);

/** Several phases are counted by the steps of the run, a single one by its own. */
const stepsOf = ({ step, phaseStep }: Column, isRun: boolean) => (isRun ? step : phaseStep);

/** The column of all phases of a group, one after the other. */
function joined(phases: readonly Phase[], key: string): Points | undefined {
  const columns = phases.flatMap(({ columns: of }): Column[] => (of.has(key) ? [of.get(key) as Column] : []));
  if (columns.length === 0) return undefined;
  const x = columns.flatMap((of) => stepsOf(of, phases.length > 1));
  return decimate(
    x,
    columns.flatMap(({ value }) => value),
  );
}
