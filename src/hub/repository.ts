// Requests the commit and the files of a repository from the hub.
import { isRow } from '../data/columns.js';
import { HubError, hubFailed } from './error.js';
import { type HubId, isCommit } from './hub-id.js';
import { type HubRequest, hubFetch, silentOr, unreachable } from './request.js';
import type { HubSettings } from './settings.js';

export type RepositoryKind = 'model' | 'dataset';

/** A file of a commit. */
export interface RepositoryFile {
  /** Path with `/` between folders. */
  readonly path: string;
  /** Bytes. */
  readonly size: number;
  /** Content hash: SHA-256 of a large file, else git's SHA-1 of a blob. */
  readonly etag: string;
}

export interface RepositoryListing {
  readonly commit: string;
  readonly files: readonly RepositoryFile[];
}

/** Bytes of the longest answer that is read. */
const LARGEST_LISTING = 256 * 2 ** 20;

/** Path of a repository's page, and prefix of its files. */
export function webPath(kind: RepositoryKind, repo: string): string {
  return kind === 'model' ? repo : `datasets/${repo}`;
}

/** `data set a/b@v1`, for messages. */
export function describe(kind: RepositoryKind, { repo, revision }: HubId): string {
  return `${kind === 'model' ? 'model' : 'data set'} ${repo}${revision === 'main' ? '' : `@${revision}`}`;
}

/** Requests the commit and the files of a revision. Throws HubError. */
export async function listRepository(
  settings: HubSettings,
  kind: RepositoryKind,
  id: HubId,
  signal?: AbortSignal,
): Promise<RepositoryListing> {
  const { repo, revision } = id;
  const request: HubRequest = { settings, what: describe(kind, id), page: webPath(kind, repo), revision };
  const path = `api/${kind}s/${repo}/revision/${encodeURIComponent(revision)}?blobs=true`;
  const response = await hubFetch(request, `${settings.endpoint}/${path}`, { signal: silentOr(signal) });
  const text = await bounded(response, request);
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    throw nonsense(request, 'is not JSON', error);
  }
  if (!isRow(answer) || !isCommit(String(answer.sha)) || !Array.isArray(answer.siblings)) {
    throw nonsense(request, "has no 'sha' and 'siblings'");
  }
  return { commit: String(answer.sha), files: answer.siblings.map((file) => fileOf(file, request)) };
}

/** The text of an answer. One of a hub with 100,000 files has 20 MB. */
async function bounded(response: Response, request: HubRequest): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of response.body ?? []) {
      parts.push(part as Uint8Array);
      size += part.length;
      if (size > LARGEST_LISTING) throw nonsense(request, 'is longer than any list of files');
    }
  } catch (error) {
    if (error instanceof HubError) throw error;
    throw unreachable(new URL(request.settings.endpoint), error);
  }
  return Buffer.concat(parts).toString('utf8');
}

function fileOf(value: unknown, request: HubRequest): RepositoryFile {
  const { rfilename: path, size, blobId, lfs } = isRow(value) ? value : {};
  const etag = isRow(lfs) ? lfs.sha256 : blobId;
  const isHash = typeof etag === 'string' && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(etag);
  if (typeof path !== 'string' || !isHash || !Number.isSafeInteger(size) || (size as number) < 0) {
    throw nonsense(request, 'lists a file without its name, size and checksum');
  }
  // A name becomes a path in the cache, so it must not lead out of it.
  const isBad = (part: string) => part === '' || part === '.' || part === '..' || part.length > 255;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: names are printed on a terminal, and NUL ends a path
  if (path.split(/[/\\]/).some(isBad) || /[\0-\x1f\x7f]/.test(path)) {
    throw nonsense(request, `lists a file with the name ${JSON.stringify(path.slice(0, 80))}`);
  }
  return { path, size: size as number, etag };
}

function nonsense({ settings, what }: HubRequest, finding: string, cause?: unknown): HubError {
  return hubFailed(
    `${settings.endpoint} answers for ${what} with something that ${finding}; check HF_ENDPOINT`,
    { cause },
  );
}
