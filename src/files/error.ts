import { StepTrainError } from '../native/errors.js';

/** A file or folder that cannot be read, written or locked: one sentence with its path, the reason and what to do. */
export class FileError extends StepTrainError {
  override readonly name = 'FileError';
  constructor(message: string, options: ErrorOptions = {}) {
    super('E_FILE', message, options);
  }
}

/** The result of `call`, which writes to `path`. Throws FileError where the system refuses. */
export function writing<T>(path: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw new FileError(`cannot write ${path}: ${systemReason(error)}`, { cause: error });
  }
}

/** The reason of a failed system call, in words for the user. */
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
    case 'EEXIST':
      return 'a file of this name is there already; name another one';
    case 'ENOTDIR':
      return 'a part of the path is not a directory';
    default:
      return message;
  }
}
