import { StepTrainError } from '../native/errors.js';

/** A file of a model or adapter cannot be used as it is: one sentence with the place, the finding and what to do. */
export class WeightsError extends StepTrainError {
  override readonly name = 'WeightsError';
  constructor(message: string, options: ErrorOptions = {}) {
    super('E_WEIGHTS', message, options);
  }
}

const SHOWN_CHARACTERS = 60;
const SHOWN_NAMES = 8;

/** A value as it stood in the file, cut to a length that fits in a sentence. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS)}…`;
}

/** "'a', 'b', 'c' and 40 more". */
export function showNames(names: readonly string[]): string {
  const shown = names
    .slice(0, SHOWN_NAMES)
    .map((name) => `'${name.length <= 200 ? name : `${name.slice(0, 200)}…`}'`)
    .join(', ');
  return names.length <= SHOWN_NAMES ? shown : `${shown} and ${names.length - SHOWN_NAMES} more`;
}

/** The reason of a failed system call in words that a user can act on. */
export function systemReason(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  switch (code) {
    case 'ENOENT':
      return 'no such file or directory';
    case 'EACCES':
    case 'EPERM':
      return 'permission denied';
    case 'ENOSPC':
    case 'EDQUOT':
      return 'no space left on the disk; free some, or write elsewhere';
    case 'EROFS':
      return 'the file system is read-only';
    case 'EFBIG':
      return 'the file grows beyond the size that the file system or the process limit allows';
    case 'EISDIR':
      return 'it is a directory';
    case 'ENOTDIR':
      return 'a part of the path is not a directory';
    default:
      return message;
  }
}
