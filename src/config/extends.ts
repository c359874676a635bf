// `extends: base.yaml`: a recipe on top of another one.
import { existsSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { nearestName } from '../native/nearest.js';
import { typedCommand } from '../native/typed-command.js';
import { ConfigError } from './error.js';
import { describeValue } from './issues.js';
import { forget, type ImpliedKey } from './method-names.js';
import { forBase } from './pretrained.js';
import { recipeNames, shippedRecipe } from './shipped.js';
import { parseRecipe, type RecipeSource, readRecipe } from './source.js';
import { merged, type Section, walk } from './values.js';

/** Max recipes that one extends, directly or through others. */
const MAX_DEPTH = 8;

/** The name of a configuration that a program hands over; recipes are named by their file. */
export const FROM_PROGRAM = 'config';

/** A recipe with those that it extends. */
export interface LayeredRecipe {
  /** The values of all of them; the upper one's where both have one. */
  readonly value: Section;
  /** The key that its `method` implies, such as the algorithm of `method: grpo`. */
  readonly implied?: ImpliedKey | undefined;
  /** The names of the sections that the recipe itself has. */
  readonly own: ReadonlySet<string>;
  /** The values that a pretrained base brought with it, a sentence for each recipe that has values for one. */
  readonly notes: readonly ((config: object) => string)[];
  /** Locates a value in the file that has it. */
  readonly locate: RecipeSource['locate'];
}

/**
 * Sections are merged key by key; any other value, lists too, takes the place of the one below.
 *
 * @param spellOut changes the value of one file in place, before it is laid on others
 * @param chosenBase `model.base` of the command line, which stands above that of every file
 * @throws ConfigError where a base is missing, is no recipe, goes round in a circle, or is too deep
 */
export function withBases(
  source: RecipeSource,
  spellOut: (value: Section, locate: RecipeSource['locate']) => ImpliedKey | undefined,
  chosenBase?: string,
): LayeredRecipe {
  const read: (RecipeSource & { readonly implied: ImpliedKey | undefined })[] = [];
  const files = [identity(source.name)];
  for (let top: RecipeSource | undefined = source; top !== undefined; ) {
    const base = baseOf(top);
    delete top.value.extends;
    read.push({ ...top, implied: spellOut(top.value, top.locate) });
    if (base === undefined) break;
    const where = top.locate(['extends']);
    const file = identity(base);
    if (files.includes(file))
      throw new ConfigError(`${where}: extends goes round in a circle: ${[...files, file].join(' → ')}`);
    if (read.length > MAX_DEPTH)
      throw new ConfigError(`${where}: more than ${MAX_DEPTH} recipes extend one another`);
    files.push(file);
    top = parseRecipe(readRecipe(base, `${where}: `), base);
  }
  const base = chosenBase ?? read.map(({ value }) => value.model).find(namesBase)?.base;
  const fitted = read.map((layer) => forBase(layer, base));
  const layers = fitted.map(({ layer }) => layer);
  const whole = layers.reduceRight((below, above) => {
    if (!Object.hasOwn(above.value, 'method'))
      return { ...above, value: merged(below.value, above.value), implied: below.implied };
    forget(below.value, below.implied);
    return { ...above, value: merged(below.value, above.value) };
  });
  return {
    value: whole.value,
    implied: whole.implied,
    own: new Set(Object.keys(source.value)),
    notes: fitted.flatMap(({ note }) => note ?? []),
    locate: (path, options) => nearest(layers, path).locate(path, options),
  };
}

const namesBase = (model: unknown): model is { readonly base: unknown } =>
  typeof model === 'object' && model !== null && Object.hasOwn(model, 'base');

/** The file that `extends` names: next to the recipe, or a recipe of the package. */
function baseOf({ name, value, locate }: RecipeSource): string | undefined {
  if (!Object.hasOwn(value, 'extends')) return undefined;
  const named = value.extends;
  const where = locate(['extends']);
  if (typeof named !== 'string' || named.trim() === '')
    throw new ConfigError(
      `${where}: extends expects the file of a recipe, or the name of one of the package, found ${describeValue(named)}`,
    );
  const beside = resolve(dirname(name), named);
  if (existsSync(beside) && statSync(beside).isFile()) return relativeTo(name, named);
  const shipped = shippedRecipe(named);
  if (shipped !== undefined) return shipped;
  const near = existsSync(`${beside}.yaml`)
    ? `${named}.yaml`
    : nearestName(named.replace(/\.yaml$/, ''), recipeNames());
  // A program's configuration lies in no folder of its own.
  const place = name === FROM_PROGRAM ? `in ${process.cwd()}` : `beside ${name}`;
  throw new ConfigError(
    `${where}: extends names ${named}, but there is no such file ${place} and no recipe of that name in the package` +
      (near === undefined ? `; ${typedCommand('recipes ls')} lists them` : `; did you mean ${near}?`),
  );
}

/** The path of an extended recipe as messages name it, relative to the recipe that names it. */
const relativeTo = (name: string, named: string) =>
  resolve(named) === named ? named : join(dirname(name), named);

/** One identity for every way to write a path. */
function identity(name: string): string {
  return existsSync(name) ? realpathSync(name) : name;
}

/** The uppermost file that has the value, or else most of the sections around it. */
function nearest(layers: readonly RecipeSource[], path: readonly PropertyKey[]): RecipeSource {
  const depths = layers.map(({ value }) => walk(value, path).depth);
  return layers[depths.indexOf(Math.max(...depths))] as RecipeSource;
}
