// What this machine has: instruction sets, GPUs, compilers. From it follows what the addon is compiled for.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Of CMakeLists.txt. */
const ISAS = ['portable', 'avx2', 'avx512', 'avx512bf16', 'amx'];
/** Kernels for every supported GPU; each compute capability, and PTX for what is newer. */
const ARCHITECTURES = '80;90a';

export function onPath(command, before = [], after = []) {
  const folders = [...before, ...(process.env.PATH ?? '').split(delimiter), ...after];
  return folders.map((folder) => join(folder, command)).find((path) => existsSync(path));
}

/** Portable kernels and those of this processor, with the set that the latter falls back on. */
export function machineIsas(flags = processorFlags()) {
  const has = (...names) => names.every((name) => flags.has(name));
  if (!has('avx512f', 'avx512bw', 'avx512vl', 'avx512dq'))
    return has('avx2', 'fma') ? ['portable', 'avx2'] : ['portable'];
  if (!has('avx512_bf16')) return ['portable', 'avx512'];
  const amx = has('amx_bf16', 'amx_tile') ? ['amx'] : [];
  return ['portable', 'avx512', 'avx512bf16', ...amx];
}

function processorFlags() {
  try {
    const line = /^flags\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? '';
    return new Set(line.trim().split(/\s+/));
  } catch {
    return new Set();
  }
}

/** Compute capabilities of the GPUs here, as nvcc names them: `80`, `89`, `90a`. Empty where there is none. */
export function gpuArchitectures() {
  if (!onPath('nvidia-smi')) return [];
  const query = ['--query-gpu=compute_cap', '--format=csv,noheader'];
  const { status, stdout } = spawnSync('nvidia-smi', query, { encoding: 'utf8', timeout: 60_000 });
  if (status !== 0) return [];
  const found = [...stdout.matchAll(/^(\d+)\.(\d)\s*$/gm)].map(([, major, minor]) => Number(major + minor));
  return [...new Set(found)]
    .filter((capability) => capability >= 80)
    .map((capability) => (capability === 90 ? '90a' : `${capability}`));
}

function findNvcc() {
  const home = process.env.CUDA_HOME ?? process.env.CUDA_PATH;
  return onPath('nvcc', home ? [join(home, 'bin')] : [], ['/usr/local/cuda/bin']);
}

/**
 * What to compile: `isas`, `cuda` (`nvcc` and `architectures`, or undefined) and `why` CUDA is left out where that may surprise.
 * `all`: for every machine, as far as the compilers here can. Throws an Error of one sentence where the environment asks for what
 * cannot be.
 */
export function addonPlan(all, { env = process.env, nvcc = findNvcc, gpus = gpuArchitectures } = {}) {
  const isas = all ? (process.arch === 'x64' ? ISAS : ['portable']) : machineIsas();
  const cuda = env.STEPTRAIN_CUDA;
  if (cuda === '0') return { isas };
  const compiler = nvcc();
  if (!compiler && cuda === '1') throw new Error('STEPTRAIN_CUDA is 1, but there is no nvcc on the PATH');
  const own = all ? [] : gpus();
  if (!compiler) return { isas, why: own.length > 0 ? 'a GPU, but no nvcc' : undefined };
  const architectures = env.STEPTRAIN_CUDA_ARCHS ?? (own.length > 0 ? own.join(';') : ARCHITECTURES);
  if (all || cuda === '1' || env.STEPTRAIN_CUDA_ARCHS || own.length > 0)
    return { isas, cuda: { nvcc: compiler, architectures } };
  return { isas, why: 'no GPU found; STEPTRAIN_CUDA=1 adds it' };
}
