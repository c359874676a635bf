// Gets selected files of a commit from the cache or, if missing, from the hub.
import { mkdir, statfs } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLock, type Unlock } from '../files/lock.js';
import { type ProgressStream, progressStream } from '../terminal/log.js';
import { createProgress, formatBytes } from '../terminal/progress.js';
import { RepositoryCache, sizeOf, writing } from './cache.js';
import { download } from './download.js';
import { badDisk, HubError } from './error.js';
import { type HubId, isCommit } from './hub-id.js';
import {
  describe,
  listRepository,
  type RepositoryFile,
  type RepositoryKind,
  type RepositoryListing,
  webPath,
} from './repository.js';
import { type HubSettings, hubSettings } from './settings.js';

export interface SnapshotOptions {
  /** Default: from the environment. */
  readonly settings?: HubSettings;
  /** Stream for progress. Default standard error. */
  readonly stream?: ProgressStream;
  /** Milliseconds before an interrupted download is retried. Default 500. */
  readonly patience?: number;
  /** Ends it with its reason: the file that is under way is removed, those that are whole stay. */
  readonly signal?: AbortSignal | undefined;
}

export interface Snapshot {
  /** `…/snapshots/<commit>` */
  readonly directory: string;
  readonly commit: string;
  /** The selected files. */
  readonly paths: readonly string[];
  /** All files of the commit. */
  readonly all: readonly string[];
}

/** Selects files of a commit by their paths; throws HubError if a needed one is missing. */
export type ChooseFiles = (paths: readonly string[]) => readonly string[];

/**
 * Makes sure that the selected files of a repository are in the cache. A commit whose files the hub listed once needs no
 * network; otherwise the hub resolves the revision, or the cache if the hub cannot be reached.
 *
 * @throws HubError
 */
export async function fetchSnapshot(
  kind: RepositoryKind,
  id: HubId,
  choose: ChooseFiles,
  options: SnapshotOptions = {},
): Promise<Snapshot> {
  const { settings = hubSettings(), stream = progressStream(), signal } = options;
  signal?.throwIfAborted();
  const cache = new RepositoryCache(settings.cache, kind, id.repo);
  const known = await knownCommit(cache, id.revision);
  const snapshot = ({ commit, all }: Omit<KnownCommit, 'areListed'>): Snapshot => ({
    directory: cache.snapshot(commit),
    commit,
    paths: choose(all),
    all,
  });
  const isWhole = ({ commit, paths }: Snapshot) => paths.every((path) => cache.has(commit, path));

  const isPinned = isCommit(id.revision) && known?.areListed === true;
  if (known !== undefined && (settings.offline || isPinned)) {
    const cached = snapshot(known);
    if (isWhole(cached)) {
      if (!known.areListed) stream.write(unlisted(kind, id, cached));
      return cached;
    }
  }
  if (settings.offline) throw notCached(kind, id, settings);
  let listing: RepositoryListing;
  try {
    listing = await listRepository(settings, kind, id, signal);
  } catch (error) {
    signal?.throwIfAborted();
    if (!(error instanceof HubError) || error.kind !== 'network' || known === undefined) throw error;
    const cached = snapshot(known);
    if (!isWhole(cached)) throw error;
    stream.write(
      `${error.message.split(';')[0]}; using ${id.repo} at ${known.commit.slice(0, 8)} from the cache\n`,
    );
    if (!known.areListed) stream.write(unlisted(kind, id, cached));
    return cached;
  }
  const current = snapshot({ commit: listing.commit, all: listing.files.map(({ path }) => path) });
  const chosen = listing.files.filter(({ path }) => current.paths.includes(path));
  if (!isWhole(current)) {
    const unlock = await lock(cache, id, { stream, signal });
    try {
      await downloadFiles(kind, id, settings, cache, listing.commit, chosen, { stream, ...options });
    } finally {
      await unlock();
    }
  }
  await cache.rememberPaths(listing.commit, listing.files);
  await cache.rememberCommit(id.revision, listing.commit);
  return current;
}

/** Files that change how a model is asked and when its replies end, and that not every model has. */
const OPTIONAL = ['chat_template.jinja', 'generation_config.json'];

/** The line on a commit whose files nobody listed; empty for a model with all files that a model may have. */
function unlisted(kind: RepositoryKind, { repo }: HubId, { paths, all }: Snapshot): string {
  const cached = `${repo}: another program cached it, and whether it cached all files is not known here`;
  if (kind === 'dataset') return `${cached}; using ${paths.join(', ')}\n`;
  const lacking = all.includes('config.json') ? OPTIONAL.filter((path) => !all.includes(path)) : [];
  return lacking.length === 0
    ? ''
    : `${cached}; ${lacking.join(' and ')} ${lacking.length > 1 ? 'are' : 'is'} not there\n`;
}

interface KnownCommit {
  readonly commit: string;
  readonly all: readonly string[];
  /** Whether the hub listed them. */
  readonly areListed: boolean;
}

async function knownCommit(cache: RepositoryCache, revision: string): Promise<KnownCommit | undefined> {
  const commit = await cache.commitOf(revision);
  const found = commit === undefined ? undefined : await cache.paths(commit);
  if (commit === undefined || found === undefined) return undefined;
  return { commit, all: found.paths, areListed: found.areListed };
}

interface Progressing {
  readonly stream: ProgressStream;
}

async function downloadFiles(
  kind: RepositoryKind,
  id: HubId,
  settings: HubSettings,
  cache: RepositoryCache,
  commit: string,
  files: readonly RepositoryFile[],
  { stream, patience = 500, signal }: Pick<SnapshotOptions, 'patience' | 'signal'> & Progressing,
): Promise<void> {
  const page = webPath(kind, id.repo);
  const request = { settings, what: describe(kind, id), page, revision: id.revision };
  const absent: RepositoryFile[] = [];
  // Commits share blobs, and another process may have been faster.
  for (const file of files) if ((await sizeOf(cache.blob(file.etag))) !== file.size) absent.push(file);
  const total = absent.reduce((sum, { size }) => sum + size, 0);
  let start = 0;
  for (const { etag, size } of absent) start += Math.min(size, await cache.partialSize(etag));
  await requireSpace(cache.folder, total - start, request.what);
  const progress = createProgress({ total, start, unit: 'byte', stream });
  let before = 0;
  try {
    for (const file of absent) {
      await download({
        request,
        url: `${settings.endpoint}/${page}/resolve/${commit}/${file.path.split('/').map(encodeURIComponent).join('/')}`,
        file,
        target: cache.blob(file.etag),
        onProgress: (bytes) => progress.update(before + bytes, { [id.repo]: file.path }),
        patience,
        signal,
      });
      before += file.size;
    }
  } finally {
    progress.finish();
  }
  for (const file of files) await cache.place(commit, file);
}

async function lock(
  cache: RepositoryCache,
  { repo }: HubId,
  { stream, signal }: Pick<SnapshotOptions, 'signal'> & Progressing,
): Promise<Unlock> {
  await writing(cache.lockFolder, () => mkdir(cache.lockFolder, { recursive: true }));
  for (let reported = false; ; reported = true) {
    const taken = await tryLock(cache.lockFolder);
    if (typeof taken === 'function') return taken;
    if (!reported) stream.write(`process ${taken.owner} is downloading ${repo}; waiting for it\n`);
    await sleep(200, undefined, { signal }).catch(() => signal?.throwIfAborted());
  }
}

async function requireSpace(folder: string, needed: number, what: string): Promise<void> {
  await writing(folder, () => mkdir(folder, { recursive: true }));
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= needed) return;
  throw badDisk(
    `the ${what} needs ${formatBytes(needed)}, and ${formatBytes(bavail * bsize)} are free on the disk of ${folder}; ` +
      'free some, or name another place with HF_HOME',
  );
}

function notCached(kind: RepositoryKind, id: HubId, { cache }: HubSettings): HubError {
  return new HubError(
    'offline',
    `HF_HUB_OFFLINE is set and the ${describe(kind, id)} is not, or not whole, in ${cache}; unset it to download`,
  );
}
