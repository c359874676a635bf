/** The base models that a configuration or a command names. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StepTrainError } from '../native/errors.js';
import { typedCommand } from '../native/typed-command.js';
import { ggufDirectory, isGguf } from './gguf.js';

interface Shipped {
  /** Folder in `assets/`. */
  readonly folder: string;
  /** Base of a judge that is an adapter; the judge reads the steps of solutions on it. */
  readonly base?: string;
  /** The recipe that makes it. */
  readonly recipe: string;
  readonly what: string;
}

/** The models of the package, by name. */
const PACKAGE: Readonly<Record<string, Shipped>> = {
  embedded: { folder: 'arithmetic-base', recipe: 'pretrain_arithmetic', what: 'writes sums' },
  'word-problems': {
    folder: 'word-problems',
    recipe: 'pretrain_word_problems',
    what: 'writes solutions of small word problems',
  },
  'word-problems-misread': {
    folder: 'word-problems-misread',
    recipe: 'pretrain_word_problems_misread',
    what: 'the same, and misreads some',
  },
  'word-problems-turns': {
    folder: 'word-problems-turns',
    recipe: 'pretrain_word_problem_turns',
    what: 'solves them with a calculator',
  },
  'word-problems-attempts': {
    folder: 'word-problems-attempts',
    recipe: 'pretrain_word_problems_attempts',
    what: 'has also read attempts',
  },
  'word-problems-judge': {
    folder: 'word-problems-judge',
    base: 'word-problems-attempts',
    recipe: 'quickstart',
    what: 'judges their steps',
  },
};

const ASSETS = fileURLToPath(new URL('../../assets', import.meta.url));

/** The directory of an adapter that the package ships; undefined for any other name. @throws StepTrainError where it is not here */
export function shippedAdapter(name: string): string | undefined {
  const judge = Object.hasOwn(PACKAGE, name) ? PACKAGE[name] : undefined;
  if (judge?.base === undefined) return undefined;
  const directory = join(ASSETS, judge.folder);
  if (existsSync(join(directory, 'adapter_config.json'))) return directory;
  throw new StepTrainError(
    'E_ASSET',
    `the judge ${JSON.stringify(name)} is not in this installation; make one with: ${typedCommand(`run ${judge.recipe}`)}, then name ` +
      'that run',
  );
}

/** The model under a judge of the package; undefined for any other name. */
export const judgeBase = (name: string): string | undefined =>
  Object.hasOwn(PACKAGE, name) ? PACKAGE[name]?.base : undefined;

export function shippedNames(): string[] {
  return packageNames().filter(isShipped);
}

/** Every name that the package has, models and judges. */
export const packageNames = (): string[] => Object.keys(PACKAGE);

/** The same names with descriptions, for messages. */
export const describedNames = (): string =>
  Object.entries(PACKAGE)
    .map(([name, { what }]) => `${name} (${what})`)
    .join(', ');

/** Whether the name is that of a model of the package, not a path or a hub id. */
export function isShipped(base: string): boolean {
  return Object.hasOwn(PACKAGE, base) && PACKAGE[base]?.base === undefined;
}

/** Whether a run's `model.base` is a model that somebody trained, and none of the package's small ones. */
export function isPretrained(base: unknown): boolean {
  return typeof base === 'string' && !isShipped(base);
}

/**
 * The directory of `base`: a path as it is, the directory of a model of the package, or one made from a GGUF file.
 *
 * @throws StepTrainError where this installation lacks it, WeightsError for a GGUF file that is damaged or not
 * supported
 */
export function baseDirectory(base: string): string {
  if (isGguf(base)) return ggufDirectory(base);
  const directory = shippedDirectory(base);
  if (directory === undefined) return base;
  if (existsSync(join(directory, 'config.json'))) return directory;
  throw new StepTrainError(
    'E_ASSET',
    `the model ${JSON.stringify(base)} is not in this installation; make it with: ${typedCommand(`run ${PACKAGE[base]?.recipe}`)}, ` +
      'then name its model/ directory',
  );
}

/** The directory of a tokenizer, which may exist without its model. */
export function tokenizerDirectory(name: string): string {
  return isGguf(name) ? ggufDirectory(name) : (shippedDirectory(name) ?? name);
}

/** The directory of a model of the package, installed or not; undefined for any other name. */
export function shippedDirectory(name: string): string | undefined {
  return isShipped(name) ? join(ASSETS, (PACKAGE[name] as Shipped).folder) : undefined;
}
