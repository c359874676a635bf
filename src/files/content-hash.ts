import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';

/** Hashes of files that this process has read, with the state that each file was in. */
const known = new Map<string, { readonly state: string; readonly hash: string }>();

/** A file that was changed less than this ago may change again without another time. */
const SETTLED_MS = 2000;

/** SHA-256 of a whole file, in hexadecimal; a file that did not change since is not read again. Throws the system's error. */
export async function contentHash(path: string): Promise<string> {
  const { ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
  const state = [ino, size, mtimeNs, ctimeNs].join();
  const before = known.get(path);
  if (before?.state === state) return before.hash;
  const isSettled = Date.now() - Number(ctimeNs) / 1e6 > SETTLED_MS;
  const hash = await readHash(path);
  if (isSettled) known.set(path, { state, hash });
  return hash;
}

async function readHash(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

const BLOCK = 64 * 1024;
const BLOCKS = 64;

/**
 * Length and hash of a file that may have gigabytes: of 64 blocks of 64 KiB, evenly over its length, or of the whole where it is
 * shorter. Training changes all blocks; a change in less than a 64th of the file may go unseen.
 */
export async function sampledHash(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    const hash = createHash('sha256');
    const whole = size <= BLOCK * BLOCKS;
    for (let i = 0; i < (whole ? Math.ceil(size / BLOCK) : BLOCKS); i++) {
      const position = whole ? i * BLOCK : Math.floor((i * (size - BLOCK)) / (BLOCKS - 1));
      const { buffer, bytesRead } = await file.read(Buffer.alloc(BLOCK), 0, BLOCK, position);
      hash.update(buffer.subarray(0, bytesRead));
    }
    return `${size} bytes, ${hash.digest('hex').slice(0, 16)}`;
  } finally {
    await file.close();
  }
}
