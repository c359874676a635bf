import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';

/** SHA-256 of a whole file, in hexadecimal. Throws the system's error. */
export async function contentHash(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
