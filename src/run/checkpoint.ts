// checkpoints/step-N/: written under a temporary name, verified, marked, then renamed. The marker comes last and holds
// the size and SHA-256 of every file, so that a torn checkpoint is never mistaken for a complete one.
import { mkdir, open, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { contentHash } from '../files/content-hash.js';
import { replaceDirectory, syncDirectory, syncFile } from '../files/directory.js';
import { systemReason } from '../files/error.js';
import { readJson, writeJson } from '../files/json-file.js';
import { DamagedRunError, RunError } from './error.js';

/** The file of a checkpoint that says which others belong to it. */
export const MARKER = 'checkpoint.json';
const PARTIAL = '.partial';

const markerSchema = z.strictObject({
  step: z.int().min(0),
  files: z.record(z.string(), z.strictObject({ bytes: z.int().min(0), sha256: z.string().length(64) })),
  /** Length of each log of the run at this step, in bytes. */
  logs: z.record(z.string(), z.int().min(0)),
});
type Marker = z.output<typeof markerSchema>;

export interface Checkpoint {
  readonly step: number;
  /** Absolute path of its directory. */
  readonly path: string;
  /** Length of each log of the run at this step, in bytes. */
  readonly logs: Readonly<Record<string, number>>;
}

export interface SaveOptions {
  /** Writes the files into `folder`; subfolders are refused. */
  readonly write: (folder: string) => Promise<void>;
  readonly logs: Readonly<Record<string, number>>;
}

/**
 * Writes `root`/step-`step`. On any failure (a full disk, an exception of `write`) nothing remains of it, and older
 * checkpoints are untouched. A checkpoint of the same step is replaced once the new one is complete.
 */
export async function saveCheckpoint(
  root: string,
  step: number,
  { write, logs }: SaveOptions,
): Promise<Checkpoint> {
  const path = join(root, `step-${step}`);
  const partial = `${path}${PARTIAL}`;
  try {
    await mkdir(root, { recursive: true });
    await rm(partial, { recursive: true, force: true });
    await mkdir(partial);
    await write(partial);
    const files: Record<string, Marker['files'][string]> = {};
    for (const name of (await readdir(partial)).sort()) files[name] = await settleFile(join(partial, name));
    await writeJson(join(partial, MARKER), { step, files, logs } satisfies Marker);
    await replaceDirectory(partial, path);
    await syncDirectory(root);
  } catch (error) {
    await rm(partial, { recursive: true, force: true }).catch(() => {});
    throw saveFailure(step, await newestMarked(root), error);
  }
  return { step, path, logs };
}

/** The result of `findCheckpoint`. */
export interface FoundCheckpoint {
  readonly checkpoint: Checkpoint;
  /** Newer checkpoints that were passed over, and the damage of each. */
  readonly damaged: readonly { readonly step: number; readonly reason: string }[];
}

/**
 * The newest checkpoint whose files all match the sizes and checksums of its marker; undefined where none was written.
 *
 * @throws RunError where all are damaged
 */
export async function findCheckpoint(root: string): Promise<FoundCheckpoint | undefined> {
  const damaged: { step: number; reason: string }[] = [];
  for (const step of await steps(root)) {
    const path = join(root, `step-${step}`);
    const marker = await readMarker(path);
    const reason =
      marker?.step === step
        ? await damage(path, marker)
        : `${MARKER} is missing, cut short or of another step`;
    if (marker && reason === undefined) return { checkpoint: { step, path, logs: marker.logs }, damaged };
    damaged.push({ step, reason: reason as string });
  }
  if (damaged.length === 0) return undefined;
  const list = damaged.map(({ step, reason }) => `step ${step} (${reason})`).join(', ');
  throw new DamagedRunError(
    `${root}: every checkpoint is damaged: ${list}; restore one from a copy, or start a new run`,
  );
}

/** The content of the marker of the checkpoint in `path`, and the first file that does not match it. */
export async function checkedCheckpoint(path: string): Promise<{
  readonly step: number | undefined;
  readonly bytes: number;
  readonly damage: string | undefined;
}> {
  const marker = await readMarker(path);
  if (!marker) return { step: undefined, bytes: 0, damage: `${MARKER} is missing or cut short` };
  const bytes = Object.values(marker.files).reduce((sum, file) => sum + file.bytes, 0);
  return { step: marker.step, bytes, damage: await damage(path, marker) };
}

/**
 * Removes checkpoints older than the `limit` newest complete ones, everything newer than `written`, and partial ones
 * left by a crash. `written` has just been verified and stays, so the only good checkpoint is never deleted.
 */
export async function pruneCheckpoints(root: string, written: Checkpoint, limit: number): Promise<void> {
  let kept = 0;
  for (const step of await steps(root)) {
    const path = join(root, `step-${step}`);
    const keep =
      step === written.step ||
      (step < written.step && kept < limit && (await readMarker(path)) !== undefined);
    if (keep) kept++;
    else await rm(path, { recursive: true, force: true });
  }
  for (const name of await names(root)) {
    if (name.endsWith(PARTIAL)) await rm(join(root, name), { recursive: true, force: true });
  }
}

/** Syncs a file to disk and returns its size and checksum. */
async function settleFile(path: string): Promise<{ bytes: number; sha256: string }> {
  const info = await stat(path);
  if (!info.isFile()) throw new RunError(`${path} is not a file; a checkpoint holds files only`);
  const file = await open(path, 'r');
  try {
    await syncFile(file);
  } finally {
    await file.close();
  }
  return { bytes: info.size, sha256: await contentHash(path) };
}

/** The first file that differs from the marker, and how; undefined where none does. */
async function damage(path: string, marker: Marker): Promise<string | undefined> {
  for (const [name, { bytes, sha256 }] of Object.entries(marker.files)) {
    const file = join(path, name);
    const size = await stat(file).then(
      (info) => info.size,
      () => undefined,
    );
    if (size === undefined) return `${name} is missing`;
    if (size !== bytes) return `${name} has ${size} bytes instead of ${bytes}`;
    if ((await contentHash(file).catch(() => '')) !== sha256)
      return `the content of ${name} is not what was written`;
  }
  return undefined;
}

async function readMarker(path: string): Promise<Marker | undefined> {
  const value = await readJson(join(path, MARKER)).catch(() => undefined);
  return markerSchema.safeParse(value).data;
}

async function newestMarked(root: string): Promise<number | undefined> {
  for (const step of await steps(root)) {
    if (await readMarker(join(root, `step-${step}`))) return step;
  }
  return undefined;
}

function saveFailure(step: number, kept: number | undefined, error: unknown): RunError {
  const reason = error instanceof Error && 'errno' in error ? systemReason(error) : (error as Error).message;
  const rest = kept === undefined ? 'there is no older checkpoint' : `the checkpoint of step ${kept} is kept`;
  return new RunError(`the checkpoint of step ${step} was not written (${reason}); ${rest}`, {
    cause: error,
  });
}

/** The steps that have a directory, newest first. */
async function steps(root: string): Promise<number[]> {
  const found = (await names(root)).map((name) => /^step-(0|[1-9]\d*)$/.exec(name)?.[1]);
  return found.flatMap((step) => (step === undefined ? [] : [Number(step)])).sort((a, b) => b - a);
}

async function names(root: string): Promise<string[]> {
  return readdir(root).catch(() => []);
}
