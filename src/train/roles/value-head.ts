/** The head that gives a state its value: an output for each token, trained with a policy or with a critic of its own. */
import type { ModelConfig } from '../../architectures/config.js';
import type { ParameterSpec, TrainableParameters } from '../../autograd/parameters.js';
import type { LinearHead } from '../../models/decoder.js';
import { writeParameters } from '../../models/heads.js';
import { draw } from '../../models/initial-values.js';
import { adamSettings } from '../adamw.js';

/** Prefix in a parameter's name that marks the head. */
export const VALUE_HEAD = 'value_head.';

/** Random stream of its first values. */
const VALUE_STREAM = 0x7a1e;

export function valueHead(config: ModelConfig, seed: number): ParameterSpec[] {
  const shape = [1, config.outputSize];
  const init = draw({ kind: 'normal', deviation: config.initializerRange }, shape, seed, VALUE_STREAM);
  return [
    { name: `${VALUE_HEAD}weight`, shape, init },
    { name: `${VALUE_HEAD}bias`, shape: [1], init: new Float32Array(1) },
  ];
}

/** Factor of the learning rate of a head that starts from random numbers beside an adapter. */
export const HEAD_RATE = 10;

/** Settings of an optimizer that trains the head together with other parameters. */
export const withHeadRate = (settings: Parameters<typeof adamSettings>[0]) => ({
  ...adamSettings(settings),
  rateOf: (name: string) => (name.startsWith(VALUE_HEAD) ? HEAD_RATE : 1),
});

/** The head among `parameters`. */
export function valueHeadOf(parameters: TrainableParameters): LinearHead {
  const named = (name: string) => {
    const found = parameters.get(`${VALUE_HEAD}${name}`);
    if (!found) throw new RangeError(`there is no ${VALUE_HEAD}${name}`);
    return found;
  };
  return { weight: named('weight'), bias: named('bias'), reads: 'every' };
}

/** Writes value_head.safetensors. */
export async function saveValueHead(
  { list }: TrainableParameters,
  fileOf: (name: string) => string,
): Promise<void> {
  const head = list.filter(({ name }) => name.startsWith(VALUE_HEAD));
  await writeParameters(fileOf('value_head.safetensors'), head);
}
