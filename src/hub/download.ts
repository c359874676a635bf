// Downloads one file from the hub: resumed after an interruption, verified, and moved into place only when complete.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { syncFile } from '../files/directory.js';
import { formatBytes } from '../terminal/progress.js';
import { sizeOf, writing } from './cache.js';
import { badContent, HubError, hubFailed } from './error.js';
import type { RepositoryFile } from './repository.js';
import { type HubRequest, hubFetch, SILENCE_MS, unreachable } from './request.js';

export interface Download {
  readonly request: HubRequest;
  readonly url: string;
  readonly file: RepositoryFile;
  /** Path of the complete file; the download goes to `target.incomplete`. */
  readonly target: string;
  /** Called with the bytes downloaded so far. */
  readonly onProgress: (bytes: number) => void;
  /** Milliseconds before the first retry; doubled for each one without a new byte. */
  readonly patience: number;
  readonly signal?: AbortSignal | undefined;
}

/** Max consecutive attempts without a new byte. */
const ATTEMPTS = 5;

/**
 * Downloads `file` to `target`. Throws HubError; the bytes received stay for the next attempt, but not those of a download that
 * `signal` has ended with its reason.
 */
export async function download(job: Download): Promise<void> {
  const { target } = job;
  const partial = `${target}.incomplete`;
  try {
    await downloadTo(partial, job);
  } catch (error) {
    if (job.signal?.aborted) await rm(partial, { force: true });
    throw error;
  }
  await writing(target, () => rename(partial, target));
}

async function downloadTo(partial: string, job: Download): Promise<void> {
  const { file } = job;
  await writing(partial, () => mkdir(dirname(partial), { recursive: true }));
  const inherited = (await sizeOf(partial)) > 0;
  await fetchAll(job, partial);
  if (inherited && !(await isIntact(partial, file))) {
    // A part left by an earlier process may be damaged; blame the hub only for a file downloaded in one piece.
    await rm(partial, { force: true });
    await fetchAll(job, partial);
  }
  if (!(await isIntact(partial, file))) {
    await rm(partial, { force: true });
    throw badContent(
      `the content of ${file.path} of the ${job.request.what} does not match its checksum ${file.etag}; ` +
        'the download was removed, try again',
    );
  }
}

async function fetchAll(job: Download, partial: string): Promise<void> {
  const { file, request, patience, signal } = job;
  for (let futile = 0, again = 0; ; ) {
    const before = await sizeOf(partial);
    if (before === file.size) return;
    try {
      const fitting = await fetchRest(job, partial, before > file.size ? 0 : before);
      // The partial file was emptied; a hub that asks for that twice would go on for ever.
      if (!fitting && ++again > 1)
        throw badContent(
          `the hub sends ${file.path} of the ${request.what} in parts and refuses to continue them; try again later`,
        );
    } catch (error) {
      signal?.throwIfAborted();
      if (!(error instanceof HubError) || error.kind !== 'network') throw error;
      const now = await sizeOf(partial);
      futile = now > before ? 0 : futile + 1;
      if (futile === ATTEMPTS) {
        throw hubFailed(
          `the download of ${file.path} of the ${request.what} stopped at ${formatBytes(now)} of ` +
            `${formatBytes(file.size)}: ${error.message}; the same command continues from there`,
          { cause: error },
        );
      }
      await sleep(patience * 2 ** futile, undefined, { signal }).catch(() => signal?.throwIfAborted());
    }
  }
}

/** Downloads and appends the bytes from `offset` on; false where the hub has none from there, and the part here was emptied. */
async function fetchRest(job: Download, partial: string, offset: number): Promise<boolean> {
  const { request, url, file } = job;
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(new DOMException('', 'TimeoutError')), SILENCE_MS);
  try {
    const response = await hubFetch(request, url, {
      // A compressed response could not be resumed; with a range, fetch requests none by itself.
      headers: offset > 0 ? { range: `bytes=${offset}-` } : { 'accept-encoding': 'identity' },
      signal: AbortSignal.any([silence.signal, ...(job.signal ? [job.signal] : [])]),
    });
    const start = response.status === 206 ? offset : 0;
    if (response.status === 206) checkRange(response, offset, file, request);
    const out = await writing(partial, () => open(partial, start === 0 ? 'w' : 'r+'));
    try {
      let at = start;
      if (response.status === 416) return false;
      for await (const chunk of response.body ?? []) {
        timer.refresh();
        const bytes = chunk as Uint8Array;
        if (at + bytes.length > file.size)
          throw badContent(
            `${file.path} of the ${request.what} is longer than the ${file.size} bytes that the hub announced; try again`,
          );
        await writing(partial, () => out.write(bytes, 0, bytes.length, at));
        at += bytes.length;
        job.onProgress(at);
      }
      await writing(partial, () => syncFile(out));
      if (at < file.size) throw hubFailed('the connection was closed early');
      return true;
    } finally {
      await out.close();
    }
  } catch (error) {
    if (error instanceof HubError) throw error;
    throw unreachable(new URL(url), error);
  } finally {
    clearTimeout(timer);
  }
}

function checkRange({ headers }: Response, offset: number, file: RepositoryFile, request: HubRequest): void {
  const range = headers.get('content-range') ?? '';
  const [, start, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(range) ?? [];
  if (Number(start) === offset && (total === '*' || Number(total) === file.size)) return;
  throw badContent(
    `the hub answers for ${file.path} of the ${request.what} with the range ${JSON.stringify(range)}; ` +
      `expected bytes ${offset} to the end of ${file.size}`,
  );
}

/** Compares with the SHA-256 of a large file, or with git's SHA-1 of a blob. */
async function isIntact(path: string, { size, etag }: RepositoryFile): Promise<boolean> {
  if ((await sizeOf(path)) !== size) return false;
  const hash = etag.length === 64 ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`);
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex') === etag;
}
