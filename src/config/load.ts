// Recipe text + overrides → one complete configuration, or one sentence per problem.
import { isDeepStrictEqual } from 'node:util';
import { reasonOf } from '../files/data-error.js';
import { nearestName } from '../native/nearest.js';
import { toLog } from '../terminal/log.js';
import { fillLora } from './adapter.js';
import { idlePatience, nameOf, otherProblems, sharedConflicts } from './checks.js';
import { ConfigError } from './error.js';
import { FROM_PROGRAM, type LayeredRecipe, withBases } from './extends.js';
import { describeIssues, describeValue, type Locate } from './issues.js';
import { forget, methodNames, methodTyped, spellOutMethod, spellOutOverrides } from './method-names.js';
import { optimizer as optimizerSection } from './optimizer.js';
import { methodOutline, type Outline, outlineAt, sectionOf } from './outline.js';
import { applyOverrides, type Override, parseOverride } from './overrides.js';
import type { BatchSection, FrameConfig, MethodSchema, MethodSchemas } from './schema.js';
import { shippedFolder } from './shipped.js';
import { parseRecipe, type RecipeSource, readRecipe } from './source.js';
import { giveStages, stageKeys } from './stages.js';
import { isSection, walk } from './values.js';

const SHOWN_PROBLEMS = 10;

export interface LoadedConfig<Config extends FrameConfig = FrameConfig> {
  readonly config: Config;
  /** The origin of a value, `file:line:column` or `--set …`, for errors found later. */
  readonly locate: Locate;
}

export interface ParseOptions {
  /** Stands for the file in messages. */
  readonly name: string;
  readonly settings?: readonly string[];
  /** A hint what to do about a key that is not known, at the end of the sentence about it. */
  readonly unknown?: string | undefined;
}

/** The methods of `table`; every function throws ConfigError. */
export interface ConfigReader<Config extends FrameConfig> {
  /** Reads a recipe file; `settings` are the texts after `--set`. */
  load(file: string, settings?: readonly string[]): Promise<LoadedConfig<Config>>;
  /** Reads a recipe that is already in memory. */
  parse(content: string, options: ParseOptions): LoadedConfig<Config>;
  /** Checks an object built by a program, which may extend a recipe, and fills in the defaults. */
  complete(value: unknown): Config;
  /** The method that a recipe file names. */
  methodOf(file: string): string;
  /** Whether a method has the section of a dotted key, or no other has it. */
  hasSection(method: string, key: string): boolean;
}

export function configReader<Config extends FrameConfig>(
  methods: MethodSchemas<Config>,
): ConfigReader<Config> {
  const layered = (
    source: RecipeSource,
    { settings = [], unknown }: Omit<ParseOptions, 'name'> = {},
  ): LoadedConfig<Config> => {
    const overrides = spellOutOverrides(methods, settings.map(parseOverride));
    for (const { path, text, origin } of overrides) {
      const last = overrides.findLast((other) => other.path.join('.') === path.join('.'));
      if (last && last.text !== text) sayOnce(`${origin}: given twice; ${last.text} counts, the last one`);
    }
    const recipe = withBases(
      source,
      (value, at) => spellOutMethod(methods, value, at),
      overrides.findLast(({ path }) => path.join('.') === 'model.base')?.text,
    );
    const locate: Locate = (path, options) =>
      overridden(overrides, path)?.origin ?? recipe.locate(path, options);
    const completed = complete(methods, recipe, overrides, locate, unknown);
    for (const note of recipe.notes) sayOnce(note(completed.config));
    return completed;
  };
  const parse: ConfigReader<Config>['parse'] = (content, { name, ...options }) =>
    layered(parseRecipe(content, name), options);
  return {
    parse,
    methodOf(file) {
      const source = parseRecipe(readRecipe(file), file);
      const { value, locate } = withBases(source, (own, at) => spellOutMethod(methods, own, at));
      return chooseMethod(methods, value, [], locate);
    },
    hasSection(method, key) {
      const section = key.split('.')[0] as string;
      const [name = ''] =
        Object.entries(methods).find(
          ([own, { algorithms }]) => own === method || algorithms?.names.includes(method),
        ) ?? [];
      const known = methods[name] ? sectionsOf(methods, name) : {};
      return Object.hasOwn(known, section) || ownerOf(methods, section) === undefined;
    },
    load: async (file, settings = []) => parse(readRecipe(file), { name: file, settings }),
    complete(value) {
      if (!isSection(value)) {
        const hint = typeof value === 'string' ? `; { extends: '${value}' } is the recipe of that name` : '';
        throw new ConfigError(
          `a configuration is an object with sections, found ${describeValue(value)}${hint}`,
        );
      }
      const own = copied(value);
      if (own.extends === undefined) delete own.extends;
      return layered({ name: FROM_PROGRAM, value: own, locate: () => FROM_PROGRAM }).config;
    },
  };
}

function copied(value: Record<string, unknown>): Record<string, unknown> {
  try {
    return structuredClone(value);
  } catch (error) {
    throw new ConfigError(
      `a configuration holds texts, numbers, lists and sections alone: ${reasonOf(error)}`,
    );
  }
}

function complete<Config extends FrameConfig>(
  methods: MethodSchemas<Config>,
  { value, implied, own }: Omit<LayeredRecipe, 'locate'>,
  overrides: readonly Override[],
  place: Locate,
  unknown?: string,
): LoadedConfig<Config> {
  const name = chooseMethod(methods, value, overrides, place);
  if (overrides.some(({ path }) => path[0] === 'method')) forget(value, implied);
  const method = methods[name] as MethodSchema<Config>;
  const outline = methodOutline(method);
  const written = value.method;
  const changed = typeof written === 'string' && written !== name;
  for (const { path, origin } of overrides)
    if (!Object.hasOwn(outline.properties ?? {}, path[0]!) && ownerOf(methods, path[0]!) !== undefined)
      throw problems([belongsElsewhere(methods, path[0]!, name, () => origin)]);
  const locate = withOptimizer(value, overrides, outline, place, unknown);
  const lacking = outline.properties?.lora ? fillLora(value, locate) : undefined;
  if (lacking !== undefined) throw problems([lacking]);
  fillEmptySections(value, outline);

  const misplaced = takeSectionsOfOtherMethods(methods, value, name);
  // A recipe may extend one of another method, whose sections are then left out.
  const wrongHere = changed ? [] : misplaced.filter((key) => own.has(key));
  const sentences = wrongHere.map((key) => belongsElsewhere(methods, key, name, locate));
  if (changed && misplaced.length > 0) {
    const sections = misplaced.map((key) => `"${key}"`).join(', ');
    sayOnce(`method ${written} of the recipe is ${name} by --set: its ${sections} is left out`);
  }
  const parsed = method.schema.safeParse(value);
  const wrong = parsed.success
    ? []
    : describeIssues(parsed.error.issues, { outline, value, locate, unknown });
  if (!parsed.success || sentences.length > 0) throw problems([...sentences, ...wrong]);
  const config = parsed.data;
  raiseDefaults(config, method, value);
  const conflicts = [...sharedConflicts(config, method), ...method.conflicts(config)];
  if (conflicts.length > 0) {
    throw problems(conflicts.map(({ path, message }) => `${locate(path)}: ${message}`));
  }
  const isDefault = (path: readonly string[]) => {
    const { default: usual } = outlineAt(outline, ['data', ...path]) ?? {};
    return isDeepStrictEqual(walk(config.data, path).found, usual);
  };
  for (const { path, message } of [
    ...otherProblems(value.data, config.data, isDefault),
    ...idlePatience(config, method),
    ...(method.unread?.(config) ?? []),
  ]) {
    const place = locate(path);
    // Over a recipe of the package a user may choose what leaves a key of it behind.
    if (!place.startsWith(shippedFolder)) sayOnce(`${place}: ${message}`, 'warning');
  }
  return { config, locate };
}

/** Makes the micro-batches and steps whose size is nowhere written large enough for the longest sequence. */
function raiseDefaults<Config extends FrameConfig>(
  config: Config,
  method: Pick<MethodSchema<Config>, 'sections'>,
  value: Readonly<Record<string, unknown>>,
): void {
  for (const section of Object.values(method.sections(config))) {
    const written = value[nameOf(section, config)];
    const own: { -readonly [Key in keyof BatchSection]: BatchSection[Key] } = section;
    for (const key of ['micro_batch_tokens', 'tokens_per_step'] as const) {
      const isWritten = isSection(written) && written[key] !== undefined;
      if (!isWritten && typeof own[key] === 'number')
        own[key] = Math.max(own[key] as number, config.data.max_length);
    }
  }
}

/**
 * Applies the overrides to `value` and gives its stages what `optimizer` has for them: that of the recipe where they have no such
 * key, that of `--set` in any case, as it stands above the recipe. The places of values are then those of what was given.
 */
function withOptimizer(
  value: Record<string, unknown>,
  overrides: readonly Override[],
  outline: Outline,
  locate: Locate,
  unknown: string | undefined,
): Locate {
  const typed: Record<string, unknown> = {};
  const isTyped = ({ path }: Override) => path[0] === 'optimizer';
  applyOverrides(typed, overrides.filter(isTyped), outline);
  const { optimizer: written } = value;
  delete value.optimizer;
  for (const section of [written, typed.optimizer]) {
    const read = optimizerSection.nullable().safeParse(section);
    if (read.success) continue;
    const issues = read.error.issues.map((issue) => ({ ...issue, path: ['optimizer', ...issue.path] }));
    throw problems(describeIssues(issues, { outline, value: { optimizer: section }, locate, unknown }));
  }
  const [recipe, above] = [written, typed.optimizer].map((section) => (isSection(section) ? section : {}));
  giveStages(value, above!, outline, { over: true });
  applyOverrides(
    value,
    overrides.filter((override) => !isTyped(override)),
    outline,
  );
  const given = { ...recipe, ...above };
  const filled = new Set(giveStages(value, given, outline));
  const stages = [...stageKeys(outline)];
  for (const key of Object.keys(recipe!)) {
    if (Object.hasOwn(above!, key) || stages.some(([name]) => filled.has(`${name}.${key}`))) continue;
    const readers = stages.filter(([, keys]) => keys.includes(key)).map(([name]) => `${name}.${key}`);
    const why = readers.length === 0 ? 'no stage has such a key' : `the recipe has ${readers.join(' and ')}`;
    sayOnce(
      `${locate(['optimizer', key], { key: true })}: optimizer.${key} changes nothing, since ${why}`,
      'warning',
    );
  }
  const isGiven = (section: string, key: string) =>
    filled.has(`${section}.${key}`) ||
    (Object.hasOwn(above!, key) &&
      stages.some(([name, keys]) => name === section && keys.includes(key)) &&
      overridden(overrides, [section, key]) === undefined);
  return (path, options) => {
    const [section, key] = path.map(String);
    return path.length === 2 && isGiven(section!, key!)
      ? locate(['optimizer', key!], options)
      : locate(path, options);
  };
}

/** Names of other programs, with the method that does the same here; none of them is near to its own. */
const MEANT: Readonly<Record<string, string>> = {
  prm: 'reward',
  orm: 'reward',
  reward_model: 'reward',
  dr_grpo: 'grpo',
  reinforce: 'reinforce_pp',
  pretraining: 'pretrain',
  expert_iteration: 'rft',
};

function chooseMethod(
  methods: MethodSchemas,
  value: Record<string, unknown>,
  overrides: readonly Override[],
  locate: Locate,
): string {
  const method = methodNamed(overrides, value);
  if (typeof method === 'string' && Object.hasOwn(methods, method)) return method;
  const names = methodNames(methods);
  const expected = `expected ${names.join(' or ')}`;
  if (method !== undefined) {
    const nearest =
      typeof method === 'string' ? (MEANT[method.toLowerCase()] ?? nearestName(method, names)) : undefined;
    const hint = nearest === undefined ? '' : `; did you mean "${nearest}"?`;
    throw new ConfigError(
      `${locate(['method'])}: ${expected} as method, found ${describeValue(method)}${hint}`,
    );
  }
  const misspelt = Object.keys(value).find((key) => nearestName(key, ['method']));
  if (misspelt === undefined) throw new ConfigError(`${locate([])}: method is missing; ${expected}`);
  throw new ConfigError(
    `${locate([misspelt], { key: true })}: unknown key "${misspelt}"; did you mean "method"?`,
  );
}

function methodNamed(overrides: readonly Override[], value: Record<string, unknown>): unknown {
  const typed = overrides.findLast(({ path }) => path.length === 1 && path[0] === 'method');
  return typed ? methodTyped(typed) : value.method;
}

// `sft:` with every key commented out is YAML's null: an empty section. An empty `lora:` means none.
function fillEmptySections(value: Record<string, unknown>, outline: Outline): void {
  for (const [key, node] of Object.entries(outline.properties ?? {})) {
    if (!Object.hasOwn(value, key) || !sectionOf(node)) continue;
    if (value[key] === null && node.default !== undefined) value[key] = node.default;
    if (isSection(value[key])) fillEmptySections(value[key], sectionOf(node)!);
  }
}

const said = new Set<string>();

/** A sweep reads the same recipe for each of its runs. */
function sayOnce(sentence: string, level: 'info' | 'warning' = 'info'): void {
  if (!said.has(sentence)) toLog(sentence, level);
  said.add(sentence);
}

/** Removes the sections that only other methods read; their names. */
function takeSectionsOfOtherMethods(
  methods: MethodSchemas,
  value: Record<string, unknown>,
  method: string,
): string[] {
  const known = sectionsOf(methods, method);
  return Object.keys(value).filter((key) => {
    if (Object.hasOwn(known, key) || ownerOf(methods, key) === undefined) return false;
    delete value[key];
    return true;
  });
}

function belongsElsewhere(methods: MethodSchemas, key: string, method: string, locate: Locate): string {
  return `${locate([key], { key: true })}: section "${key}" belongs to method ${ownerOf(methods, key)}, and the method is ${method}; remove it`;
}

const sectionsOf = (methods: MethodSchemas, name: string) =>
  methodOutline(methods[name] as MethodSchema).properties ?? {};

/** The first method that has a section. */
const ownerOf = (methods: MethodSchemas, key: string) =>
  Object.keys(methods).find((name) => Object.hasOwn(sectionsOf(methods, name), key));

/** The override that set the value at `path` or a section around it. */
function overridden(overrides: readonly Override[], path: readonly PropertyKey[]): Override | undefined {
  return overrides.findLast(
    (override) =>
      override.path.length <= path.length && override.path.every((key, i) => key === String(path[i])),
  );
}

function problems(sentences: readonly string[]): ConfigError {
  const different = [...new Set(sentences)];
  const shown = different.slice(0, SHOWN_PROBLEMS);
  if (different.length > shown.length)
    shown.push(`and ${different.length - shown.length} more problems like these`);
  return new ConfigError(shown.join('\n'));
}
