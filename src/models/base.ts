/** The base models that a configuration or a command names. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { StepTrainError } from '../native/errors.js';

/**
 * The directory of `base`: the path itself, or of `embedded` the arithmetic base that the package ships.
 *
 * @throws StepTrainError where this installation has no embedded base
 */
export function baseDirectory(base: string): string {
  return base === 'embedded' ? embeddedBase() : base;
}

function embeddedBase(): string {
  const directory = fileURLToPath(new URL('../../assets/arithmetic-base', import.meta.url));
  if (existsSync(directory)) return directory;
  throw new StepTrainError(
    'E_ASSET',
    'the embedded base model is missing from this installation; make it with: steptrain run recipes/pretrain_arithmetic.yaml',
  );
}
