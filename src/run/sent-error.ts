/** Errors with data on their way from a worker thread: error classes do not survive a message. */
import { DataError } from '../files/data-error.js';

export type SentDataError = Pick<DataError, 'kind' | 'what' | 'position' | 'hint'>;

/** @throws the error itself where it is unexpected; it then ends the thread */
export function sentError(error: unknown): SentDataError {
  if (!(error instanceof DataError)) throw error;
  const { kind, what, position, hint } = error;
  return { kind, what, position, hint };
}

/** The error as its thread threw it. */
export function receivedError({ kind, what, position, hint }: SentDataError): DataError {
  return new DataError(kind, what, { ...position, ...(hint === '' ? {} : { hint }) });
}
