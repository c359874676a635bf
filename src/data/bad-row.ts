/**
 * A row that does not fit its source's layout. The reader adds the position and either throws it as a
 * DataError or counts it under `reason`, a stable short key such as `missing_column`.
 */
export class BadRow extends Error {
  override readonly name = 'BadRow';

  constructor(
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}
