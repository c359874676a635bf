/** `method: step_dpo`: DPO of single steps (arXiv 2406.18629). */
import { stepPairs } from './answers/kinds.js';
import { dpoObjective } from './dpo.js';
import { beta } from './fields.js';
import { offlineMethod } from './method.js';

export const stepDpo = offlineMethod({
  name: 'step_dpo',
  about: 'DPO of single steps: a right and a wrong one after the same beginning',
  defaults: { learning_rate: 1e-5, batch_size: 32 },
  keys: { beta: beta(0.4) },
  kind: stepPairs,
  objective: ({ beta }) => dpoObjective({ beta, loss_type: 'sigmoid', label_smoothing: 0 }),
});
