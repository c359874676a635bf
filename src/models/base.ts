/** The base models that a configuration or a command names. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StepTrainError } from '../native/errors.js';
import { ggufDirectory, isGguf } from './gguf.js';

/** The models that the package ships, by name: their folder in `assets/`, and the recipe that makes them. */
const SHIPPED: Readonly<Record<string, { readonly folder: string; readonly recipe: string }>> = {
  embedded: { folder: 'arithmetic-base', recipe: 'pretrain_arithmetic' },
  'word-problems': { folder: 'word-problems', recipe: 'pretrain_word_problems' },
  'word-problems-misread': { folder: 'word-problems-misread', recipe: 'pretrain_word_problems_misread' },
};

export function shippedNames(): string[] {
  return Object.keys(SHIPPED);
}

/** Whether the name is that of a model of the package, not a path or a hub id. */
export function isShipped(base: string): boolean {
  return Object.hasOwn(SHIPPED, base);
}

/**
 * The directory of `base`: the path itself, that of a model that the package ships, or what a GGUF file says of itself.
 *
 * @throws StepTrainError where this installation lacks it, WeightsError for a GGUF file that is damaged or not supported
 */
export function baseDirectory(base: string): string {
  if (isGguf(base)) return ggufDirectory(base);
  const directory = shippedDirectory(base);
  if (directory === undefined) return base;
  if (existsSync(join(directory, 'config.json'))) return directory;
  throw new StepTrainError(
    'E_ASSET',
    `the model ${JSON.stringify(base)} is not in this installation; make it with: steptrain run ${SHIPPED[base]?.recipe}, ` +
      'then name its model/ directory',
  );
}

/** The same for a tokenizer alone, which may be there without its model. */
export function tokenizerDirectory(name: string): string {
  return isGguf(name) ? ggufDirectory(name) : (shippedDirectory(name) ?? name);
}

/** Where a model of the package lies, or would; undefined for any other name. */
export function shippedDirectory(name: string): string | undefined {
  const shipped = isShipped(name) ? SHIPPED[name] : undefined;
  return shipped && fileURLToPath(new URL(`../../assets/${shipped.folder}`, import.meta.url));
}
