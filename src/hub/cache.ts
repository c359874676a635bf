// The cache on disk, in the layout of huggingface_hub, so that both can use each other's downloads:
// models--a--b/{blobs/<etag>, refs/<revision>, snapshots/<commit>/<path> → blob}.

import { existsSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, stat, symlink } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { systemReason } from '../files/error.js';
import { badDisk, HubError } from './error.js';
import { isCommit } from './hub-id.js';
import type { RepositoryFile, RepositoryKind } from './repository.js';

export class RepositoryCache {
  readonly folder: string;
  /** Folder of the lock by which processes that download this repository take turns. */
  readonly lockFolder: string;

  constructor(cache: string, kind: RepositoryKind, repo: string) {
    const name = `${kind}s--${repo.replace('/', '--')}`;
    this.folder = join(cache, name);
    this.lockFolder = join(cache, '.locks', name);
  }

  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit);
  }

  blob(etag: string): string {
    return join(this.folder, 'blobs', etag);
  }

  /** Whether the content of `path` exists; a link to a deleted blob does not count. */
  has(commit: string, path: string): boolean {
    return existsSync(join(this.snapshot(commit), path));
  }

  /** The commit of `revision` at the last request. */
  async commitOf(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision;
    const commit = await readFile(this.ref(revision), 'utf8').catch(() => '');
    return isCommit(commit.trim()) ? commit.trim() : undefined;
  }

  async rememberCommit(revision: string, commit: string): Promise<void> {
    if (isCommit(revision)) return;
    await this.write(this.ref(revision), commit);
  }

  /**
   * The files of a commit as the hub listed them, or, where another program filled the cache, the files in it, which need not
   * be all.
   */
  async paths(
    commit: string,
  ): Promise<{ readonly paths: readonly string[]; readonly areListed: boolean } | undefined> {
    const listed = await readFile(this.listing(commit), 'utf8').catch(() => undefined);
    if (listed !== undefined)
      return { paths: listed.split('\n').filter((path) => path !== ''), areListed: true };
    const folder = this.snapshot(commit);
    const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
    const paths = entries
      .filter((entry) => !entry.isDirectory())
      .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll(sep, '/'));
    return paths.length > 0 && hasAllShards(paths) ? { paths, areListed: false } : undefined;
  }

  async rememberPaths(commit: string, files: readonly RepositoryFile[]): Promise<void> {
    if (existsSync(this.listing(commit))) return;
    await this.write(this.listing(commit), files.map(({ path }) => `${path}\n`).join(''));
  }

  /** Puts a blob at its path of a snapshot: as a link, or as a copy where links are not allowed. */
  async place(commit: string, { path, etag }: RepositoryFile): Promise<void> {
    const at = join(this.snapshot(commit), path);
    await writing(at, async () => {
      await mkdir(dirname(at), { recursive: true });
      await symlink(relative(dirname(at), this.blob(etag)), at).catch(
        async (error: NodeJS.ErrnoException) => {
          if (error.code === 'EEXIST') return;
          if (error.code !== 'EPERM' && error.code !== 'ENOSYS') throw error;
          await copyFile(this.blob(etag), at);
        },
      );
    });
  }

  /** Bytes of an interrupted download, 0 without one. */
  async partialSize(etag: string): Promise<number> {
    return sizeOf(`${this.blob(etag)}.incomplete`);
  }

  private ref(revision: string): string {
    return join(this.folder, 'refs', ...revision.split('/'));
  }

  // Not part of the standard layout; other programs ignore names that they do not know.
  private listing(commit: string): string {
    return join(this.folder, '.steptrain', commit);
  }

  private async write(path: string, content: string): Promise<void> {
    await writing(path, () => mkdir(dirname(path), { recursive: true }));
    await writeFileAtomically(path, [Buffer.from(content)]);
  }
}

/** Whether all shards are present: for `train-00000-of-00004.parquet`, all four. */
function hasAllShards(paths: readonly string[]): boolean {
  const shards = new Map<string, number>();
  for (const path of paths) {
    const set = path.replace(/-\d{5}-of-(\d{5})/, '-of-$1');
    if (set !== path) shards.set(set, (shards.get(set) ?? 0) + 1);
  }
  return [...shards].every(([set, count]) => count === Number(/-of-(\d{5})/.exec(set)?.[1]));
}

/** Bytes of a file, 0 where there is none. */
export async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

/** Runs `action` and turns a failed system call into an error about `path`. */
export async function writing<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof HubError) throw error;
    throw badDisk(
      `cannot write ${path}: ${systemReason(error)} (HF_HOME or HF_HUB_CACHE names another place)`,
      { cause: error },
    );
  }
}
