// Runs the compiled program as a user does, and reads the files of a run.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openSafetensors } from '../../src/weights/safetensors.js';

export const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
export const compiled = existsSync(MAIN);

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs the program; `until` is called with standard error as it grows and may return a signal to send. */
export function steptrain(
  args: readonly string[],
  until?: (err: string) => NodeJS.Signals | undefined,
  killAfter?: number,
): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    const timer = killAfter === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killAfter);
    let out = '';
    let err = '';
    let sent = false;
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    child.stderr.on('data', (chunk) => {
      err += chunk;
      const signal = sent ? undefined : until?.(err);
      if (signal) {
        sent = true;
        child.kill(signal);
      }
    });
    child.on('error', reject);
    child.on('close', (code) => {
      clearTimeout(timer);
      resolve({ code, out, err });
    });
  });
}

/** Every tensor of a safetensors file as text, for a bitwise comparison. */
export function tensors(path: string): Map<string, string> {
  const file = openSafetensors(path);
  try {
    return new Map(
      [...file.tensors.keys()].map((name) => [name, Buffer.from(file.read(name)).toString('base64')]),
    );
  } finally {
    file.close();
  }
}

/** The lines of metrics.jsonl without values that depend on the clock or on a resume. */
export async function metrics(run: string): Promise<Record<string, unknown>[]> {
  const text = await readFile(join(run, 'metrics.jsonl'), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const entries = Object.entries(JSON.parse(line) as Record<string, unknown>);
      return Object.fromEntries(entries.filter(([key]) => !/_seconds$|_per_second$|_bytes$/.test(key)));
    });
}

/** The files of the newest checkpoint by name, as text, including state.json. */
export async function lastCheckpoint(run: string): Promise<Record<string, unknown>> {
  const names = await readdir(join(run, 'checkpoints'));
  const steps = names.flatMap((name) => /^step-(\d+)$/.exec(name)?.[1] ?? []).map(Number);
  const folder = join(run, 'checkpoints', `step-${Math.max(...steps)}`);
  const files = (await readdir(folder)).filter((name) => name !== 'checkpoint.json');
  return Object.fromEntries(
    await Promise.all(
      files.map(async (name) => [
        name,
        name.endsWith('.json')
          ? JSON.parse(await readFile(join(folder, name), 'utf8'))
          : tensors(join(folder, name)),
      ]),
    ),
  );
}
