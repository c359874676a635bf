import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/** An empty directory that goes when the running test has ended. */
export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'steptrain-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
