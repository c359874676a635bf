// Prints, as a line for run.sh, which machine it is: what nvidia-smi lists (name, driver, clock, memory a row), Python's
// torch, and what pack.sh noted. The GPU is cuda:0, which need not be the first of several that nvidia-smi lists.
//   node scripts/device/machine.mjs "$(nvidia-smi …)" "torch 2.11.0"
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';

const [listed = '', python = ''] = process.argv.slice(2);
const rows = listed
  .split('\n')
  .filter(Boolean)
  .map((row) => row.split(', '));

async function ownGpu() {
  try {
    const { addon } = await import('../../dist/native/addon.js');
    return addon().cudaDevices()?.[0];
  } catch (error) {
    console.error(`machine.mjs: the addon lists no GPU: ${error.message}`);
  }
}

const own = await ownGpu();
const [gpu, driver, clock, memory] = rows.find(([name]) => name === own) ?? rows[0] ?? [];
const packed = 'build/pack.json';
console.log(
  JSON.stringify({
    kind: 'machine',
    started: new Date().toISOString(),
    gpu: own ?? gpu ?? 'none',
    driver,
    clock,
    memory,
    gpus: rows.length > 1 ? rows.map(([name]) => name) : undefined,
    processor: cpus()[0]?.model.trim(),
    cores: availableParallelism(),
    node: process.versions.node,
    python: python || undefined,
    ...(existsSync(packed) ? JSON.parse(readFileSync(packed, 'utf8')) : {}),
  }),
);
