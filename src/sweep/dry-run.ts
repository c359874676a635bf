// `steptrain sweep --dry-run`: the runs to make, and the time that they may take.

import { defined } from '../native/defined.js';
import { type Log, loggingTo, progressStream, toLog } from '../terminal/log.js';
import { createProgress, formatDuration, formatMetric, type Progress } from '../terminal/progress.js';
import { type Cell, describePoint, finalCells, trialCells, withNeeds } from './cells.js';
import { estimatedTokens } from './estimate.js';
import { type Arm, points, type Settings, type Sweep } from './file.js';
import type { FindRecipe, SweepFolder } from './folder.js';
import { chosenPoints, openSweep } from './run.js';
import { trainedTokens } from './tokens.js';

/** Lines. Throws what the sweep itself would throw before its first run. */
export async function describeSweep(
  sweep: Sweep,
  { findRecipe, jobs }: { readonly findRecipe: FindRecipe; readonly jobs: number },
): Promise<string[]> {
  const folder = await openSweep(sweep, findRecipe);
  const lines = sweep.arms.flatMap((arm) => [
    `${arm.name}: ${[`${arm.recipe}${Object.keys(arm.set).length > 0 ? ` with ${describePoint(arm.set)}` : ''}`, ...linksOf(arm)].join('; ')}`,
    ...(points(arm).length > 1 ? points(arm).map((point) => `  ${describePoint(point)}`) : []),
  ]);
  const cells = plannedCells(sweep, await chosenPoints(sweep, folder));
  const statuses = await Promise.all(cells.map((cell) => folder.status(cell)));
  const count = (status: string) => statuses.filter((each) => each === status).length;
  const reported = trialCells(sweep).length + sweep.arms.length * sweep.seeds.length;
  const runs = cells.filter(({ task }) => task === 'run').length;
  const reasons = cells.length - runs;
  lines.push(
    `${runs} runs${reasons > 0 ? ` and ${reasons} files of reasons` : ''} in ${sweep.outputDir}: ${trialCells(sweep).length} select, ${sweep.arms.length * sweep.seeds.length} are reported ` +
      `(one that does both is counted once)${runs > reported ? ', others begin from the rest' : ''}; ${count('finished')} finished, ${count('started')} to go on with, ${count('new')} new`,
  );
  const left = cells.filter(({ task }, i) => task === 'run' && statuses[i] !== 'finished');
  if (left.length > 0) lines.push(...(await estimate(folder, cells, left, jobs)));
  return lines;
}

/** Phrases that name what an arm takes from others. */
const linksOf = ({ from, tokensOf, rationales }: Arm): string[] => [
  ...(from === undefined ? [] : [`from ${from}`]),
  ...(tokensOf === undefined ? [] : [`as many tokens as ${tokensOf}`]),
  ...(rationales ? [`reasons of ${from}, k ${rationales.k}, temperature ${rationales.temperature}`] : []),
];

/** Says of the same data of several arms everything once. */
function saidOnce(): Log {
  const said = new Set<string>();
  return (line, level) => {
    if (level === 'progress' || said.has(line)) return;
    said.add(line);
    toLog(level === 'warning' ? `Warning: ${line}` : line);
  };
}

/**
 * The cells of all runs that will be made; where nothing is chosen yet, the first point of the grid is the placeholder.
 */
function plannedCells(sweep: Sweep, chosen: ReadonlyMap<string, Settings>): Cell[] {
  const guess = new Map(sweep.arms.map((arm) => [arm.name, chosen.get(arm.name) ?? points(arm)[0] ?? {}]));
  return withNeeds(sweep, [...trialCells(sweep), ...finalCells(sweep, guess)], guess);
}

interface Size {
  readonly seconds?: number;
  readonly tokens?: number;
}

/** Tokens and time of the remaining runs, from finished runs of the same arm; for new arms, from their data. */
async function estimate(
  folder: SweepFolder,
  cells: readonly Cell[],
  left: readonly Cell[],
  jobs: number,
): Promise<string[]> {
  const once = saidOnce();
  const ended = cells.filter((cell) => cell.task === 'run' && !left.includes(cell));
  const measured = await Promise.all(
    ended.map(async (cell) => ({
      arm: cell.arm.name,
      seconds: folder.record(cell)?.seconds,
      tokens: await trainedTokens(folder.directory(cell)),
    })),
  );
  const rate = mean(
    measured.map(({ seconds, tokens }) => (seconds && tokens ? seconds / tokens : undefined)),
  );
  const sizes = new Map<string, Size>();
  const first = left.filter(({ arm }, i) => left.findIndex((other) => other.arm.name === arm.name) === i);
  const counting = shownCounting(first.length);
  const ofArm = async (name: string): Promise<number | undefined> => {
    const known = mean(measured.filter(({ arm }) => arm === name).map((each) => each.tokens));
    if (known !== undefined) return known;
    const cell = cells.find(({ arm, task }) => arm.name === name && task === 'run') as Cell;
    const { from, tokensOf, rationales } = cell.arm;
    if (tokensOf !== undefined)
      return difference(await withThoseBefore(tokensOf), from ? await withThoseBefore(from) : 0);
    if (rationales) return undefined;
    return loggingTo(once, () => estimatedTokens(folder, cell));
  };
  const withThoseBefore = async (name: string): Promise<number | undefined> => {
    const { from } = (cells.find(({ arm }) => arm.name === name) as Cell).arm;
    return sum([await ofArm(name), from === undefined ? 0 : await withThoseBefore(from)]);
  };
  for (const cell of first) {
    const { name } = cell.arm;
    counting.update(sizes.size, { counting: name });
    const own = measured.filter(({ arm }) => arm === name);
    const tokens = await ofArm(name);
    const seconds =
      mean(own.map((each) => each.seconds)) ??
      (rate === undefined || tokens === undefined ? undefined : rate * tokens);
    sizes.set(name, defined<Size>({ tokens, seconds }));
  }
  counting.finish();
  const each = [...sizes].map(
    ([name, { tokens }]) => `${name} ${tokens === undefined ? 'unknown' : formatMetric(tokens)}`,
  );
  const total = sum(left.map(({ arm }) => sizes.get(arm.name)?.seconds));
  const time =
    total === undefined
      ? 'not known before a run has ended'
      : `about ${formatDuration(total / jobs)} for the ${left.length} left, by the ${ended.length} that have ended` +
        `${jobs > 1 ? `, ${jobs} at a time` : ''}`;
  const untold = [...sizes.values()].some(({ tokens }) => tokens === undefined);
  const note = untold ? ' (unknown where a run learns from what it makes itself)' : '';
  return [`trained tokens a run, about: ${each.join(', ')}${note}`, `time: ${time}`];
}

/** Progress of counting an arm's tokens, which takes seconds: a line that moves on a terminal, one elsewhere. */
function shownCounting(arms: number): Pick<Progress, 'update' | 'finish'> {
  if (progressStream().isTTY) return createProgress({ total: arms, unit: 'arm' });
  toLog(`counting the tokens that a run of each of ${arms} arms trains on`);
  return { update() {}, finish() {} };
}

const known = (values: readonly (number | undefined)[]) => values.filter((value) => value !== undefined);

function mean(values: readonly (number | undefined)[]): number | undefined {
  const numbers = known(values);
  return numbers.length === 0 ? undefined : numbers.reduce((a, b) => a + b, 0) / numbers.length;
}

const difference = (a: number | undefined, b: number | undefined) =>
  a === undefined || b === undefined ? undefined : a - b;

/** Undefined where one is. */
function sum(values: readonly (number | undefined)[]): number | undefined {
  const numbers = known(values);
  return numbers.length < values.length ? undefined : numbers.reduce((a, b) => a + b, 0);
}
