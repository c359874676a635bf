// checkpoints/step-N/: written under a temporary name, verified, marked, then renamed. The marker comes last and holds
// the size and SHA-256 of every file, so that a torn checkpoint is never mistaken for a complete one.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { systemReason } from '../files/error.js';
import { readJson, writeJson } from '../files/json-file.js';
import { RunError } from './error.js';

const MARKER = 'checkpoint.json';
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

/** The newest checkpoint whose files all match the sizes and checksums of its marker; torn ones are skipped. */
export async function latestCheckpoint(root: string): Promise<Checkpoint | undefined> {
  for (const step of await steps(root)) {
    const path = join(root, `step-${step}`);
    const marker = await readMarker(path);
    if (marker?.step === step && (await matches(path, marker))) return { step, path, logs: marker.logs };
  }
  return undefined;
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
    await file.sync();
  } finally {
    await file.close();
  }
  return { bytes: info.size, sha256: await sha256(path) };
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

// rename() cannot replace a directory that has files, so the old one is moved aside until the new one is in place.
async function replaceDirectory(from: string, to: string): Promise<void> {
  const aside = `${to}-replaced${PARTIAL}`;
  await rm(aside, { recursive: true, force: true });
  const old = await rename(to, aside).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return false;
      throw error;
    },
  );
  try {
    await rename(from, to);
  } catch (error) {
    if (old) await rename(aside, to);
    throw error;
  }
  if (old) await rm(aside, { recursive: true, force: true });
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

async function matches(path: string, marker: Marker): Promise<boolean> {
  for (const [name, { bytes, sha256: expected }] of Object.entries(marker.files)) {
    const file = join(path, name);
    const size = await stat(file).then(
      (info) => info.size,
      () => -1,
    );
    if (size !== bytes || (await sha256(file).catch(() => '')) !== expected) return false;
  }
  return true;
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
