// artefacts/NAME.jsonl: rows that a stage produces for later stages and other runs, one JSON object per line.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { LogFile } from './log-file.js';

/** A finished artefact. */
export interface SealedArtefact {
  readonly rows: number;
  readonly sha256: string;
}

const LINE_BREAK = 0x0a;

/** Syncs the rows to disk, counts them and computes the checksum. */
export async function sealArtefact(file: LogFile): Promise<SealedArtefact> {
  file.sync();
  const hash = createHash('sha256');
  let rows = 0;
  for await (const chunk of createReadStream(file.path, { highWaterMark: 1 << 20 })) {
    const bytes = chunk as Buffer;
    hash.update(bytes);
    for (const byte of bytes) if (byte === LINE_BREAK) rows++;
  }
  return { rows, sha256: hash.digest('hex') };
}
