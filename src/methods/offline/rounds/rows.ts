import { objectRows } from '../../../data/rows.js';

/** The rows of an artefact, which this package wrote. */
export async function artefactRows<Row>(path: string): Promise<Row[]> {
  const rows: Row[] = [];
  for await (const { row } of objectRows(path)) rows.push(row as unknown as Row);
  return rows;
}
