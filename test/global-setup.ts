// Runs once for each project of vitest.config.ts, before its tests.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { addon } from '../src/native/addon.js';

declare module 'vitest' {
  interface ProvidedContext {
    /** A folder for the files of tests, which goes when all of them have ended. */
    folder: string;
  }
}

export default function setup(project: TestProject): () => void {
  if (project.name === 'unit') sayWhatIsLeftOut();
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-tests-'));
  project.provide('folder', folder);
  return () => rmSync(folder, { recursive: true, force: true });
}

/** Kernels that nothing of this run can test. */
function sayWhatIsLeftOut(): void {
  let unbuilt: readonly string[];
  try {
    unbuilt = addon().unbuiltIsas();
  } catch {
    return; // a test that needs the addon says what is wrong with it
  }
  if (unbuilt.length === 0) return;
  console.warn(
    `skipped: kernels of ${unbuilt.join(', ')}, which are not in this build (npm run build -- --all)`,
  );
}
