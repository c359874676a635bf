// The sweep file: which runs are made, what selects among them, and what is reported.
import { readFile } from 'node:fs/promises';
import { parse as parseYaml } from 'yaml';
import { z } from 'zod';
import { ConfigError } from '../config/error.js';
import { describeIssues } from '../config/issues.js';
import { methodOutline, type Outline } from '../config/outline.js';
import { parseOverride } from '../config/overrides.js';
import { parseRecipe } from '../config/source.js';
import { systemReason } from '../files/error.js';

const setting = z.union([
  z.string(),
  z.number(),
  z.boolean(),
  z.null(),
  z.array(z.unknown()),
  z.record(z.string(), z.unknown()),
]);
const settings = z
  .record(z.string(), setting)
  .meta({ expects: 'values by dotted key, such as { ppo.learning_rate: 1e-4 }' });
const grid = z
  .record(z.string(), z.array(setting).min(1))
  .meta({ expects: 'lists of values by dotted key, such as { ppo.learning_rate: [1e-4, 2e-4] }' });
const seeds = z
  .array(z.number().int().min(0))
  .min(1)
  .refine((list) => new Set(list).size === list.length)
  .meta({ expects: 'a list of different seeds, such as [1, 2, 3]' });
const key = z.string().regex(/./).meta({ expects: 'a dotted key of eval.json, or log.PHASE.KEY' });

const arm = z.strictObject({
  recipe: z.string().optional(),
  set: settings.default({}),
  grid: grid.default({}),
  from: z.string().optional(),
  tokens_of: z.string().optional(),
  rationales: z
    .strictObject({
      k: z.number().int().min(1).default(4),
      temperature: z.number().gt(0).default(0.7),
    })
    .optional(),
});

const column = z.union([
  key.transform((of) => ({ key: of, unit: 'percent' as const })),
  z.strictObject({ key, unit: z.enum(['percent', 'number', 'count']).default('percent') }),
]);

const sweepSchema = z.strictObject({
  recipe: z.string().meta({ expects: 'a recipe: a YAML file, or the name of one of the package' }).optional(),
  output_dir: z.string().regex(/./).meta({ expects: 'a directory for the runs of the sweep' }),
  share_stages: z.boolean().default(true),
  set: settings.default({}),
  arms: z.record(z.string().regex(/./), arm.nullable()).meta({ expects: 'settings by name of the arm' }),
  grid: grid.default({}),
  select: z.strictObject({ on: key, goal: z.enum(['max', 'min']).optional(), seeds }).optional(),
  seeds,
  report: z.record(z.string().regex(/./), column).meta({ expects: 'keys of eval.json by title of a column' }),
  compare_to: z.union([z.string(), z.array(z.string())]).optional(),
});

export type Settings = Readonly<Record<string, unknown>>;

export interface Arm {
  readonly name: string;
  /** The path as the file names it. */
  readonly recipe: string;
  /** The sweep's settings, then the arm's. */
  readonly set: Settings;
  /** Keys of `set` that are the sweep's alone: those of sections that the arm's method does not have are left out. */
  readonly shared: ReadonlySet<string>;
  /** Every combination is tried; the arm's own grid after the sweep's. */
  readonly grid: Readonly<Record<string, readonly unknown[]>>;
  /** The arm whose run of the same seed ends with the weights that this one begins with. */
  readonly from?: string | undefined;
  /** The arm whose trained tokens this one gets, those of `from` included on both sides. */
  readonly tokensOf?: string | undefined;
  /** How the run of `from` writes reasons for the labelled steps that have none; the arm learns from those that led to the label. */
  readonly rationales?: { readonly k: number; readonly temperature: number } | undefined;
}

/** A column of the table: a value of every run. */
export interface Column {
  readonly title: string;
  /** Dotted, in eval.json; `log.PHASE.KEY` is the last such value in metrics.jsonl. */
  readonly key: string;
  /** A fraction shown in percent, a number, or a count, which arms are not compared by. */
  readonly unit: 'percent' | 'number' | 'count';
}

export interface Sweep {
  /** Path of the file, as given. */
  readonly file: string;
  readonly outputDir: string;
  /** Whether stages that runs have in common are trained once. */
  readonly shareStages: boolean;
  readonly arms: readonly Arm[];
  /** Chooses among the points of a grid: the best mean over these seeds. Absent where no arm has a choice. */
  readonly select?: {
    readonly on: string;
    readonly goal: 'max' | 'min';
    readonly seeds: readonly number[];
  };
  readonly seeds: readonly number[];
  readonly report: readonly Column[];
  /** Arms that every other arm is compared with. */
  readonly compareTo: readonly string[];
}

/**
 * @param overrides texts after `--set`: settings of every arm, before its own
 * @throws ConfigError with the place of the mistake
 */
export async function loadSweep(file: string, overrides: readonly string[] = []): Promise<Sweep> {
  let content: string;
  try {
    content = await readFile(file, 'utf8');
  } catch (error) {
    throw new ConfigError(`the sweep file ${file} cannot be read: ${systemReason(error)}`);
  }
  return parseSweep(content, file, overrides);
}

export function parseSweep(content: string, file: string, overrides: readonly string[] = []): Sweep {
  const { value, locate } = parseRecipe(content, file);
  const parsed = sweepSchema.safeParse(value);
  if (!parsed.success) {
    const outline: Outline = methodOutline({ schema: sweepSchema as never });
    throw new ConfigError(describeIssues(parsed.error.issues, { outline, value, locate }).join('\n'));
  }
  const given = parsed.data;
  const fromCommand = Object.fromEntries(
    overrides.map(parseOverride).map(({ path, text }) => [path.join('.'), parseYaml(text)]),
  );
  const refuse = (path: readonly string[], sentence: string): never => {
    throw new ConfigError(`${locate(path, { key: true })}: ${sentence}`);
  };
  const arms = Object.entries(given.arms).map(([name, own]): Arm => {
    const recipe =
      own?.recipe ??
      given.recipe ??
      refuse(['arms', name], `arm ${name} has no recipe; name one here or at the top`);
    const common = { ...given.set, ...fromCommand };
    return {
      name,
      recipe,
      set: { ...common, ...own?.set },
      shared: new Set(Object.keys(common).filter((key) => !Object.hasOwn(own?.set ?? {}, key))),
      grid: { ...given.grid, ...own?.grid },
      from: own?.from,
      tokensOf: own?.tokens_of,
      rationales: own?.rationales,
    };
  });
  if (arms.length === 0) refuse(['arms'], 'a sweep needs at least one arm');
  for (const { name, set, grid } of arms) {
    // A section that is tried takes the place of all that is set in it.
    const twice = Object.keys(grid).find((tried) => Object.keys(set).some((key) => isWithin(key, tried)));
    if (twice !== undefined)
      refuse(['arms', name], `arm ${name} both sets ${twice} and tries values of it; remove one`);
    const own = Object.keys(given.arms[name]?.set ?? {});
    const lost = Object.keys(fromCommand).find((key) =>
      own.some((set) => isWithin(key, set) || isWithin(set, key)),
    );
    if (lost !== undefined)
      refuse(
        ['arms', name],
        `arm ${name} has a value of its own for ${lost}, which would win over --set ${lost}; change it here, or leave --set out`,
      );
    for (const [key, values] of Object.entries(grid)) {
      const shown = values.map((value) => (typeof value === 'string' ? value : JSON.stringify(value)));
      const again = shown.find((value, i) => shown.indexOf(value) < i);
      if (again !== undefined) refuse(['arms', name], `arm ${name} tries ${key}=${again} twice; remove one`);
    }
    for (const [key, instead] of Object.entries(NOT_FOR_ARMS))
      if (key in set || key in grid) refuse(['arms', name], `${key} is not for arms: ${instead}`);
  }
  for (const arm of arms) {
    const refused = linkProblem(arm, arms);
    if (refused !== undefined) refuse(['arms', arm.name], refused);
  }
  const choosing = arms.find((arm) => points(arm).length > 1);
  if (choosing && !given.select)
    refuse(
      ['select'],
      `arm ${choosing.name} has a grid, and select is missing; say what chooses: select: { on: KEY, seeds: […] }`,
    );
  if (given.select && given.select.goal === undefined && MAY_BE_LOW.test(given.select.on))
    refuse(
      ['select', 'on'],
      `${given.select.on} may be better where it is lower; say goal: min or goal: max in select`,
    );
  const names = arms.map(({ name }) => name);
  const compareTo = [...new Set([given.compare_to ?? []].flat())];
  const unknown = compareTo.find((name) => !names.includes(name));
  if (unknown !== undefined)
    refuse(['compare_to'], `there is no arm ${unknown}; arms are ${names.join(', ')}`);
  const report = Object.entries(given.report).map(([title, of]): Column => ({ title, ...of }));
  if (report.length === 0) refuse(['report'], 'a sweep reports at least one key');
  return {
    file,
    outputDir: given.output_dir,
    shareStages: given.share_stages,
    arms,
    ...(given.select ? { select: { ...given.select, goal: given.select.goal ?? 'max' } } : {}),
    seeds: given.seeds,
    report,
    compareTo,
  };
}

/** Whether a key names a section's value, or the section itself. */
const isWithin = (key: string, section: string) => key === section || key.startsWith(`${section}.`);

/** Metrics of which the least is the best, or which mean nothing by themselves. */
const MAY_BE_LOW = /(loss|brier|ece|calibration_error|entropy|kl\w*|tokens)$/;

const NOT_FOR_ARMS = {
  'run.seed': 'list the seeds under seeds',
  'run.output_dir': 'output_dir of the sweep holds all runs',
} as const;

/** The arms that this one's runs wait for. */
export const linkedArms = ({ from, tokensOf }: Arm): string[] =>
  [from, tokensOf].filter((name) => name !== undefined);

/** A sentence that refuses the arms that `arm` names; undefined where they can be. */
function linkProblem(arm: Arm, arms: readonly Arm[]): string | undefined {
  const { name, from, tokensOf, rationales, set } = arm;
  const names = arms.map((each) => each.name);
  for (const [key, other] of [
    ['from', from],
    ['tokens_of', tokensOf],
  ] as const)
    if (other !== undefined && !names.includes(other))
      return `arm ${name} has ${key}: ${other}, and there is no such arm; arms are ${names.join(', ')}`;
  const circle = circleFrom(arm, arms);
  if (circle)
    return `arm ${name} waits for itself: ${circle.join(' → ')}; from and tokens_of go round in a circle`;
  if (rationales && from === undefined)
    return `arm ${name} has rationales and no from; name the arm whose run writes the reasons`;
  if (from !== undefined && !arm.shared.has('model.adapter') && 'model.adapter' in set)
    return `arm ${name} has both from and model.adapter; remove one`;
  if (tokensOf !== undefined && 'run.max_tokens' in set)
    return `arm ${name} has both tokens_of and run.max_tokens; remove one`;
  return undefined;
}

/** The arms on the way from `arm` back to itself. */
function circleFrom(arm: Arm, arms: readonly Arm[]): string[] | undefined {
  const search = (name: string, way: readonly string[]): string[] | undefined => {
    if (way.includes(name)) return name === arm.name ? [...way, name] : undefined;
    const found = arms.find((each) => each.name === name);
    for (const next of found ? linkedArms(found) : []) {
      const circle = search(next, [...way, name]);
      if (circle) return circle;
    }
    return undefined;
  };
  return search(arm.name, []);
}

/** Every combination of the arm's grid; one without settings where there is no grid. */
export function points({ grid }: Pick<Arm, 'grid'>): Settings[] {
  return Object.entries(grid).reduce<Settings[]>(
    (found, [key, values]) => found.flatMap((point) => values.map((value) => ({ ...point, [key]: value }))),
    [{}],
  );
}
