/** Keys that may change when a run is resumed, as in `steptrain run --resume DIR --set run.max_minutes=60`. */
export const CHANGEABLE = [
  'run.max_minutes',
  'run.threads',
  'run.collectives',
  'run.overlap',
  'run.zero',
  'run.shard_base',
  'run.logging_steps',
  'run.max_skipped_steps',
  'run.accept_weak_reward',
  'run.report_to',
  '*.save_steps',
  '*.save_total_limit',
  '*.num_train_epochs',
  '*.max_steps',
  'judge.token_budget',
  'eval_solving.llm.token_budget',
] as const;
