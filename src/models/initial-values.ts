/** The values of new weights. */
import { cos, log } from '../native/elementary.js';
import { PhiloxStream } from '../random/philox.js';
import type { Initializer } from '../weights/modules.js';

/** Domain of the random stream from which new weights are drawn. */
const INITIALISATION = 0x1417;

/** Values of a new matrix; each matrix has its own stream, so that adding one changes no other. */
export function draw(
  initializer: Initializer,
  shape: readonly number[],
  seed: number,
  index: number,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(shape.reduce((product, extent) => product * extent, 1));
  if (initializer.kind === 'zero') return values;
  if (initializer.kind === 'one') return values.fill(1);
  const stream = new PhiloxStream(seed, INITIALISATION, index);
  for (let i = 0; i < values.length; i++) {
    values[i] =
      initializer.kind === 'uniform'
        ? (2 * stream.uniform() - 1) * initializer.bound
        : Math.sqrt(-2 * log(1 - stream.uniform())) *
          cos(2 * Math.PI * stream.uniform()) *
          initializer.deviation;
  }
  return values;
}
