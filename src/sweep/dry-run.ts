// `steptrain sweep --dry-run`: the runs to make, and the time that they may take.

import { formatDuration } from '../terminal/progress.js';
import { type Cell, describePoint, finalCells, trialCells, withNeeds } from './cells.js';
import { type Arm, points, type Settings, type Sweep } from './file.js';
import type { FindRecipe, SweepFolder } from './folder.js';
import { chosenPoints, openSweep } from './run.js';

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
  if (left.length > 0) lines.push(time(folder, cells, left, jobs));
  return lines;
}

/** Phrases that name what an arm takes from others. */
const linksOf = ({ from, tokensOf, rationales }: Arm): string[] => [
  ...(from === undefined ? [] : [`from ${from}`]),
  ...(tokensOf === undefined ? [] : [`as many tokens as ${tokensOf}`]),
  ...(rationales ? [`reasons of ${from}, k ${rationales.k}, temperature ${rationales.temperature}`] : []),
];

/**
 * The cells of all runs that will be made; where nothing is chosen yet, the first point of the grid is the placeholder.
 */
function plannedCells(sweep: Sweep, chosen: ReadonlyMap<string, Settings>): Cell[] {
  const guess = new Map(sweep.arms.map((arm) => [arm.name, chosen.get(arm.name) ?? points(arm)[0] ?? {}]));
  return withNeeds(sweep, [...trialCells(sweep), ...finalCells(sweep, guess)], guess);
}

/** The time of the remaining runs, by finished ones of the same arm; of an arm without one, by all. */
function time(folder: SweepFolder, cells: readonly Cell[], left: readonly Cell[], jobs: number): string {
  const ended = cells.flatMap((cell) => {
    const seconds = cell.task === 'run' && !left.includes(cell) ? folder.record(cell)?.seconds : undefined;
    return seconds === undefined ? [] : [{ arm: cell.arm.name, seconds }];
  });
  if (ended.length === 0) return 'time: not known before a run has ended';
  const total = left.reduce((sum, { arm }) => {
    const own = ended.filter((each) => each.arm === arm.name);
    const known = own.length > 0 ? own : ended;
    return sum + known.reduce((all, { seconds }) => all + seconds, 0) / known.length;
  }, 0);
  const together = jobs > 1 ? `, ${jobs} at a time` : '';
  return `time: about ${formatDuration(total / jobs)} for the ${left.length} left, by the ${ended.length} that have ended${together}`;
}
