/** The table of a sweep as pictures, a file a column: arms with their seeds, and the differences between arms. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { RunError } from '../run/error.js';
import { readLoosely } from './collect.js';
import { differenceFormat, valueFormat } from './sections/sweep.js';
import { picture } from './svg/picture.js';
import { type SweepColumn, sweepColumns } from './sweep-table.js';

/**
 * Writes an SVG file for each column of the sweep's table in which arms differ, which any page can show.
 *
 * @returns the paths
 * @throws RunError where `sweep` holds no sweep.json with a table
 */
export async function writePictures(sweep: string, directory: string): Promise<string[]> {
  const columns = sweepColumns(readLoosely(join(sweep, 'sweep.json')));
  if (columns.length === 0)
    throw new RunError(
      `${sweep} has no sweep.json with results to draw; name the folder of a sweep that has finished runs`,
    );
  mkdirSync(directory, { recursive: true });
  const paths = [];
  for (const column of columns) {
    const path = join(directory, `${fileName(column.title)}.svg`);
    await writeFileAtomically(path, [Buffer.from(sweepPicture(column))]);
    paths.push(path);
  }
  return paths;
}

/** One column as an SVG file. */
function sweepPicture(column: SweepColumn): string {
  const { title, isShare, arms, differences } = column;
  return picture(title, [
    {
      title: isShare ? `${title}, %: seeds (rings) and their mean` : `${title}: seeds (rings) and their mean`,
      rows: arms.map(({ name, values, mean }) => ({ name, values: values.map(([, value]) => value), mean })),
      format: valueFormat(column),
      isShare,
    },
    {
      title: 'differences, seed by seed: mean and Student’s 95 % interval over seeds',
      rows: differences,
      format: differenceFormat(column),
      line: 0,
    },
  ]);
}

/** `solved, before` is `solved-before`. */
const fileName = (title: string) =>
  title.replace(/[^\p{L}\p{N}@.]+/gu, '-').replace(/^[-.]+|-+$/g, '') || 'column';
