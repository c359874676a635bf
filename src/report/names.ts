/** Keys of metrics as people write them. */

const NAMES: Readonly<Record<string, string>> = {
  f1_macro: 'F1 macro',
  f1_pos: 'F1 of right steps',
  f1_neg: 'F1 of wrong steps',
  auc: 'AUC',
  acc_pos: 'Right steps recognised',
  acc_neg: 'Wrong steps recognised',
  alpha: 'α',
  kl_k1: 'KL (k1)',
  kl_k3: 'KL (k3)',
  old_kl_k3: 'KL to the sampler (k3)',
  grad_norm: 'gradient norm',
  peak_bytes: 'peak',
  reward_network: 'reward network',
  sft: 'warm-up',
  ppo: 'policy',
  words: 'the verdicts alone',
  ece: 'ECE',
};

/** `acc_pos` has a name; others lose their underscores. */
export function nameOf(key: string): string {
  return Object.hasOwn(NAMES, key) ? (NAMES[key] as string) : key.replaceAll('_', ' ');
}

/** Whether a metric is a fraction of 1 by its name. */
export function isShare(key: string): boolean {
  return (
    /(^|[_/])(f1|acc|accuracy|auc|share|pass|right|fraction|rate|ece)([_@ /]|$)/.test(key) &&
    !/learning_rate|tokens|seconds|loss/.test(key)
  );
}
