/** `method: rft`: likelihood of right answers alone, as a model's own samples are filtered (rejection sampling). */
import { rightAnswers } from './answers/kinds.js';
import { offlineMethod } from './method.js';
import { likelihood } from './solution-sft.js';

export const rft = offlineMethod({
  name: 'rft',
  about:
    'The same on right answers alone, as a model’s own samples are filtered: rejection-sampling fine-tuning',
  defaults: { learning_rate: 1e-4, batch_size: 32 },
  keys: {},
  kind: rightAnswers,
  objective: likelihood,
});
