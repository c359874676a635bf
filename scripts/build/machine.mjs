// What this machine has: instruction sets, GPUs, compilers. From it follows what the addon is compiled for.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Of CMakeLists.txt, by processor as Node names it. */
const ISAS = {
  x64: ['portable', 'avx2', 'avx512', 'avx512bf16', 'amx'],
  arm64: ['portable', 'neon', 'neonbf16'],
};
/** Of which every kernel is tested, on the emulator; PTX for what is newer is compiled beside any. */
const TESTED = '80;90a';
/** So that no driver compiles at first use: sm_80's code also runs on 8.6 and 8.7, sm_100's on 10.3, sm_120's on 12.1. */
const EVERY = ['80', '89', '90a', '100', '120'];
/** Of GPUs beside ARM processors: GH200; GB200 and GB300; DGX Spark. Any other is compiled for by its driver. */
const EVERY_ARM64 = ['90a', '100', '120'];
/** Debian's compiler for arm64. */
const GNU_ARM64 = 'aarch64-linux-gnu';

export function onPath(command, before = [], after = []) {
  const folders = [...before, ...(process.env.PATH ?? '').split(delimiter), ...after];
  return folders.map((folder) => join(folder, command)).find((path) => existsSync(path));
}

/** Portable kernels and those of this processor, with the set that the latter falls back on. */
export function machineIsas(flags = processorFlags(), arch = process.arch) {
  const has = (...names) => names.every((name) => flags.has(name));
  if (arch === 'arm64') return ['portable', 'neon', ...(has('bf16') ? ['neonbf16'] : [])];
  if (!has('avx512f', 'avx512bw', 'avx512vl', 'avx512dq'))
    return has('avx2', 'fma') ? ['portable', 'avx2'] : ['portable'];
  if (!has('avx512_bf16')) return ['portable', 'avx512'];
  const amx = has('amx_bf16', 'amx_tile') ? ['amx'] : [];
  return ['portable', 'avx512', 'avx512bf16', ...amx];
}

function processorFlags() {
  try {
    const line = /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? '';
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

const numberOf = (architecture) => Number.parseInt(architecture, 10);

/** Compute capabilities that this nvcc compiles for, ascending. Empty where it does not say. */
function knownTo(nvcc) {
  const { stdout } = spawnSync(nvcc, ['--list-gpu-code'], { encoding: 'utf8', timeout: 60_000 });
  return [...(stdout ?? '').matchAll(/\bsm_(\d+)\b/g)].map(([, code]) => Number(code)).sort((a, b) => a - b);
}

/** Those of `every` that this nvcc compiles for; before 12.8 it does not know the newest. */
function knownOf(every, nvcc) {
  const known = knownTo(nvcc);
  const found = every.filter((each) => known.includes(numberOf(each)));
  return found.length > 0 ? found.join(';') : TESTED;
}

/**
 * What this nvcc can compile for those GPUs. A GPU newer than nvcc runs code of an older one of its major version; where there is
 * none, its driver compiles the PTX that every build has.
 */
function compilable(own, nvcc) {
  const known = knownTo(nvcc);
  const of = (each) => {
    if (known.length === 0 || known.includes(numberOf(each))) return each;
    const older = known.filter(
      (code) => code < numberOf(each) && Math.floor(code / 10) === Math.floor(numberOf(each) / 10),
    );
    return `${older.at(-1) ?? 80}`;
  };
  return [...new Set(own.map(of))].join(';');
}

/** A folder with CUDA's libraries for servers of ARM (sbsa), which a toolkit for cross compilation has. */
const SBSA = '/usr/local/cuda/targets/sbsa-linux';

/**
 * CMake's settings for CUDA on arm64, of nvcc for this machine and of the runtime library for that one. `libraries` comes before
 * nvcc's own folder, whose headers are those of every processor.
 */
export function crossCuda({ nvcc, libraries }) {
  const { stderr } = spawnSync(nvcc, ['--dryrun', '-x', 'cu', '/dev/null'], { encoding: 'utf8' });
  const toolkit = /^#\$ TOP=(.*)$/m.exec(stderr ?? '')?.[1];
  if (!toolkit) throw new Error(`${nvcc} does not say where its headers are`);
  const include = join(toolkit, 'include');
  const runtime = join(libraries, 'libcudart_static.a');
  return [
    `CMAKE_CUDA_HOST_COMPILER=${GNU_ARM64}-g++`,
    `CMAKE_CUDA_FLAGS=-I${include} -isystem ${join(include, 'cccl')} -L${libraries}`,
    // CMake looks for libraries of the machine that compiles.
    'CMAKE_CUDA_RUNTIME_LIBRARY=None',
    `CUDA_CUDART=${runtime}`,
    `CUDA_cudart_static_LIBRARY=${runtime}`,
    'CUDA_rt_LIBRARY=rt',
  ];
}

/**
 * What compiles for another processor, into a folder of its own: CMake's settings, and the tool that strips. `cuda` is that of its
 * plan. Throws an Error of one sentence where it is not here.
 */
export function crossCompiler(arch, cuda) {
  if (arch !== 'arm64') throw new Error(`--arch is arm64, on a machine that is not, found ${arch}`);
  if (!onPath(`${GNU_ARM64}-g++`))
    throw new Error(`compiling for arm64 needs ${GNU_ARM64}-g++: apt-get install g++-${GNU_ARM64}`);
  return {
    strip: `${GNU_ARM64}-strip`,
    definitions: [
      'CMAKE_SYSTEM_NAME=Linux',
      'CMAKE_SYSTEM_PROCESSOR=aarch64',
      `CMAKE_CXX_COMPILER=${GNU_ARM64}-g++`,
      ...(cuda ? crossCuda(cuda) : []),
    ],
  };
}

/**
 * What to compile for that processor: every instruction set, and with `all` CUDA for the GPUs beside it, where there are nvcc and
 * its runtime library: in the folder that STEPTRAIN_SBSA_CUDA names, else where a toolkit has it. `cuda` also has `libraries`.
 */
export function crossPlan(arch, all = false, { env = process.env, nvcc = findNvcc, sbsa = SBSA } = {}) {
  const isas = ISAS[arch];
  if (env.STEPTRAIN_CUDA === '0' || !(all || env.STEPTRAIN_CUDA === '1')) return { isas };
  const compiler = nvcc();
  if (!compiler) return { isas, why: 'no nvcc' };
  const named = env.STEPTRAIN_SBSA_CUDA;
  const libraries = join(named ?? sbsa, 'lib');
  if (!existsSync(join(libraries, 'libcudart_static.a'))) {
    const missing = `${join(libraries, 'libcudart_static.a')} is not there`;
    if (named !== undefined) throw new Error(`STEPTRAIN_SBSA_CUDA is ${named}, and ${missing}`);
    return { isas, why: `${missing}; STEPTRAIN_SBSA_CUDA names the folder above lib` };
  }
  const architectures = env.STEPTRAIN_CUDA_ARCHS ?? knownOf(EVERY_ARM64, compiler);
  return { isas, cuda: { nvcc: compiler, architectures, libraries } };
}

/**
 * What to compile: `isas`, `cuda` (`nvcc` and `architectures`, or undefined) and `why` CUDA is left out where that may surprise.
 * `all`: for every machine, as far as the compilers here can. Throws an Error of one sentence where the environment asks for what
 * cannot be.
 */
export function addonPlan(all, { env = process.env, nvcc = findNvcc, gpus = gpuArchitectures } = {}) {
  const isas = all ? (ISAS[process.arch] ?? ['portable']) : machineIsas();
  const cuda = env.STEPTRAIN_CUDA;
  if (cuda === '0') return { isas };
  const compiler = nvcc();
  if (!compiler && cuda === '1') throw new Error('STEPTRAIN_CUDA is 1, but there is no nvcc on the PATH');
  const own = all ? [] : gpus();
  if (!compiler) return { isas, why: own.length > 0 ? 'a GPU, but no nvcc' : undefined };
  const architectures =
    env.STEPTRAIN_CUDA_ARCHS ??
    (all ? knownOf(EVERY, compiler) : own.length > 0 ? compilable(own, compiler) : TESTED);
  if (all || cuda === '1' || env.STEPTRAIN_CUDA_ARCHS || own.length > 0)
    return { isas, cuda: { nvcc: compiler, architectures } };
  return { isas, why: 'no GPU found; STEPTRAIN_CUDA=1 adds it' };
}
