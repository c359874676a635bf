// Selects the files of a data set, and finds one path or pattern that names them.
import { posix } from 'node:path';
import { isDataFile, namePattern } from '../data/files.js';
import type { Part } from '../data/split.js';
import { holdsWord, SPLIT_WORDS } from '../data/split-words.js';
import { notOnHub } from './error.js';

/** Files about the data, not of it. */
const METADATA = /(^|\/)(\.[^/]*|dataset_infos?\.json|dataset_dict\.json|state\.json|config\.json)$/;

const SHOWN = 8;

/**
 * The data files of a repository to use. `selection` selects those whose path contains it between word boundaries
 * (`train`, `main/test`, `data/train-00000-of-00001.parquet`). Without a selection the files of the part's split are
 * used, or all files if none belongs to a split.
 *
 * @param what the data set, for the message of a HubError
 */
export function selectDataFiles(
  paths: readonly string[],
  { part, selection, what }: { readonly part: Part; readonly selection?: string; readonly what: string },
): readonly string[] {
  const files = paths.filter((path) => isDataFile(path) && !METADATA.test(path));
  if (files.length === 0) {
    throw notOnHub(
      `the ${what} has no data file that can be read; expected .jsonl, .json, .csv (.gz) or .parquet, found ${shown(paths)}`,
    );
  }
  const words = selection === undefined ? SPLIT_WORDS[part] : [selection];
  const chosen = files.filter((path) => words.some((word) => holdsWord(path, word)));
  if (chosen.length > 0) return chosen;
  if (selection !== undefined) {
    throw notOnHub(`the ${what} has no file for :${selection}; it has ${shown(files)}`);
  }
  const splits = Object.values(SPLIT_WORDS).flat();
  if (!files.some((path) => splits.some((word) => holdsWord(path, word)))) return files;
  throw notOnHub(
    `the ${what} has no ${part} split; name a file or split behind a colon, it has ${shown(files)}`,
  );
}

/**
 * One path for the chosen files below `directory`: the file itself, or a pattern with `*` in its name.
 *
 * @param all the files of the repository
 * @throws HubError if no pattern matches exactly these files
 */
export function pathOf(
  directory: string,
  chosen: readonly string[],
  { all, what }: { readonly all: readonly string[]; readonly what: string },
): string {
  const [first = ''] = chosen;
  if (chosen.length === 1) return posix.join(directory, first);
  const folder = posix.dirname(first);
  const names = chosen.map((path) => posix.basename(path));
  const start = commonStart(names);
  const end = commonStart(names.map((name) => [...name.slice(start)].reverse().join('')));
  const pattern = `${names[0]?.slice(0, start)}*${names[0]?.slice(-end || Number.POSITIVE_INFINITY)}`;
  const { test } = namePattern(pattern);
  const meant = all.filter((path) => posix.dirname(path) === folder && test(posix.basename(path)));
  if (meant.length === chosen.length && meant.every((path) => chosen.includes(path))) {
    return posix.join(directory, folder, pattern);
  }
  throw notOnHub(
    `the ${what} has several kinds of files (${shown(chosen)}); name a file, split or folder behind a colon, ` +
      `as in ${what.split(' ').at(-1)}:${first}`,
  );
}

/** Length of the common prefix of all names. */
function commonStart(names: readonly string[]): number {
  const [first = ''] = names;
  let length = 0;
  while (length < first.length && names.every((name) => name[length] === first[length])) length++;
  return length;
}

function shown(paths: readonly string[]): string {
  const rest = paths.length > SHOWN ? ` and ${paths.length - SHOWN} more` : '';
  return paths.length === 0 ? 'nothing' : paths.slice(0, SHOWN).join(', ') + rest;
}
