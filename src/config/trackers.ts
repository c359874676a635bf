/** Programs that collect the metrics of runs, each with a Python package of its own. */
export const TRACKERS = ['wandb', 'trackio', 'mlflow'] as const;
export type Tracker = (typeof TRACKERS)[number];
