import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FloatType } from './cases.js';

const SOURCE = fileURLToPath(new URL('../../../bench/peak.cc', import.meta.url));

/** FLOPs a second of multiply-adds in registers alone, by type; what went wrong where no compiler makes the loop. */
export function measurePeak(threads: number): Readonly<Record<FloatType, number>> | string {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-peak-'));
  const program = join(folder, 'peak');
  try {
    const flags = ['-std=c++20', '-O2', '-march=native', '-pthread'];
    execFileSync(process.env.CXX ?? 'c++', [...flags, SOURCE, '-o', program], { stdio: 'pipe' });
    return JSON.parse(execFileSync(program, [`${threads}`], { encoding: 'utf8' }));
  } catch (error) {
    return `no loop of multiply-adds (${(error as Error).message.split('\n')[0]}): the largest product stands for the limit`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
