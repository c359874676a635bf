// The parts of a data set that names of files tell.
import { basename } from 'node:path';
import type { Part } from './split.js';

/** Names of the files and folders of a split, by the conventions of the `datasets` library. */
export const SPLIT_WORDS: Readonly<Record<Part, readonly string[]>> = {
  train: ['train', 'training'],
  validation: ['validation', 'valid', 'val', 'dev'],
  test: ['test', 'testing', 'eval', 'evaluation'],
};

/** Whether a path holds the word between its boundaries, in any case. */
export function holdsWord(path: string, word: string): boolean {
  const escaped = word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return new RegExp(`(^|[^a-z0-9])${escaped}($|[^a-z0-9])`, 'i').test(path);
}

/** The part that the name of a file tells, or else its folders; undefined where they tell none, or several. */
export function partOfName(path: string): Part | undefined {
  for (const text of [basename(path), path]) {
    const told = (Object.keys(SPLIT_WORDS) as Part[]).filter((part) =>
      SPLIT_WORDS[part].some((word) => holdsWord(text, word)),
    );
    if (told.length > 0) return told.length === 1 ? told[0] : undefined;
  }
  return undefined;
}
