// The package, with that of the platform, as a user meets it: packed, installed into an empty folder without a compiler, and used.
//   node scripts/package-check.mjs [--build] [--git]
// --build also compiles the addon from the installed package, which takes minutes; --git installs this commit as a git dependency
// where there is no compiler.
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onPath } from './build/machine.mjs';
import { folderOf } from './build/platforms.mjs';

/** Of each package. */
const MOST_BYTES = 25e6;
const ADDON = `@steptrain/linux-${process.arch}/steptrain.node`;

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'steptrain-package-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

/** Runs a command; ends the check with its output where it fails. */
function run(command, args, options = {}) {
  const result = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28, ...options });
  if (result.status === (options.status ?? 0)) return `${result.stdout}${result.stderr}`;
  fail(`${command} ${args.join(' ')} ended with ${result.status}:\n${result.stdout}${result.stderr}`);
}

function fail(sentence) {
  console.error(`package check: ${sentence}`);
  process.exit(1);
}

const say = (line) => console.error(`package check: ${line}`);

// ---- pack -----------------------------------------------------------------------------------------------------------
run(process.execPath, ['scripts/build.mjs', '--all'], { cwd: root });
run(process.execPath, ['scripts/prebuild.mjs'], { cwd: root });
// The scripts of npm pack, beside it: their output is no JSON.
const manifest = (...args) => run(process.execPath, ['scripts/packed-manifest.mjs', ...args], { cwd: root });
manifest();
process.on('exit', () => manifest('--restore'));
/** Of the package in a folder: its tarball and the files in it. */
function pack(from) {
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const packed = run('npm', args, { cwd: from });
  const [{ filename, size, unpackedSize, files }] = JSON.parse(
    packed.slice(packed.indexOf('[\n'), packed.lastIndexOf(']') + 1),
  );
  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
  say(`${filename}: ${megabytes(size)}, ${megabytes(unpackedSize)} unpacked, ${files.length} files`);
  if (size > MOST_BYTES) fail(`it is larger than ${megabytes(MOST_BYTES)}`);
  return { tarball: join(folder, filename), names: new Set(files.map(({ path }) => path)) };
}

const { tarball, names } = pack(root);
const processors = [process.arch];
if (process.arch === 'x64' && onPath('aarch64-linux-gnu-g++')) processors.push('arm64');
const [addonTarball] = processors.map((arch) => {
  const { tarball, names } = pack(folderOf(root, arch));
  if (!names.has('steptrain.node')) fail('it has no addon');
  return tarball;
});
if (!names.has('recipes/recipe.schema.json')) fail('the schema that its recipes name is not in it');
const strays = [...names].filter((name) => /^(test|build|prebuilds|bench|runs|node_modules|\.)/.test(name));
if (strays.length > 0) fail(`${strays.join(', ')} should not be in it`);
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const atInstall = ['preinstall', 'install', 'postinstall', 'prepare'].filter((name) => name in scripts);
if (atInstall.length > 0) fail(`npm runs, or lists, its ${atInstall.join(', ')} when it is installed`);
manifest('--restore');

for (const name of [...names].filter((path) => path.endsWith('.md') && !path.startsWith('assets/'))) {
  const text = readFileSync(join(root, name), 'utf8').replaceAll(/^```.*?^```/gms, '');
  for (const [, target] of text.matchAll(/\]\((?!\w+:|#)([^)#\s]+)/g)) {
    const path = join(dirname(name), target).replace(/\/$/, '');
    const isThere = names.has(path) || [...names].some((file) => file.startsWith(`${path}/`));
    if (!isThere) fail(`${name} links to ${target}, which is not in the package`);
  }
}

// ---- install without a compiler ---------------------------------------------------------------------------------------
const bin = join(folder, 'bin');
const app = join(folder, 'app');
mkdirSync(bin);
mkdirSync(app);
for (const command of ['node', 'npm', 'npx', 'sh', 'env'])
  symlinkSync(command === 'node' ? process.execPath : onPath(command), join(bin, command));
const env = { ...process.env, PATH: bin, STEPTRAIN_CACHE: join(folder, 'cache') };
const inApp = { cwd: app, env };
for (const compiler of ['g++', 'cc', 'cmake', 'make', 'python3'])
  if (spawnSync('sh', ['-c', `command -v ${compiler}`], inApp).status === 0)
    fail(`${compiler} is still on the PATH`);
writeFileSync(join(app, 'package.json'), '{ "private": true, "type": "module" }\n');
const quiet = ['--no-audit', '--no-fund', '--prefer-offline'];
const installed = run('npm', ['install', ...quiet, tarball, addonTarball], inApp);
if (/npm warn/.test(installed)) fail(`npm warns where it is installed:\n${installed}`);
const lock = JSON.parse(readFileSync(join(app, 'package-lock.json'), 'utf8'));
const scripted = Object.entries(lock.packages).filter(([, { hasInstallScript }]) => hasInstallScript);
if (scripted.length > 0)
  fail(`${scripted.map(([name]) => name).join(', ')} run scripts when they are installed`);
say(`installed without a compiler, ${Object.keys(lock.packages).length - 1} packages`);

// ---- use --------------------------------------------------------------------------------------------------------------
const npx = (...args) => run('npx', ['--no-install', 'steptrain', ...args], inApp);
const doctor = npx('doctor');
if (!doctor.includes(ADDON)) fail(`another addon was loaded:\n${doctor}`);
if (!/^self-test +\w+ passed/m.test(doctor)) fail(`no self-test has passed:\n${doctor}`);
const few = [
  'data.arithmetic.samples=120',
  'sft.num_train_epochs=1',
  'sft.tokens_per_step=512',
  'sft.micro_batch_tokens=512',
];
const trained = npx(
  'run',
  'quickstart_sft',
  '--output',
  'run',
  ...few.flatMap((setting) => ['--set', setting]),
);
if (!/F1 macro/.test(trained)) fail(`steptrain run printed no table:\n${trained}`);
say('doctor and run work');

writeFileSync(
  join(app, 'api.js'),
  `import { loadModel, openDevice } from 'steptrain';
import { Tensor } from 'steptrain/ops';
import { AdamW } from 'steptrain/train';
const device = openDevice('cpu');
const model = await loadModel(device, 'embedded', { dtype: 'f32' });
const [right, wrong] = await model.score(['3', '4'].map((end) => [...Buffer.from('12;-6;+7\\n12-6=6\\n6+7=1' + end)]));
console.log(right.logprobs.at(-1) > wrong.logprobs.at(-1) ? 'scored' : 'not scored');
if (!(device.zeros([1]) instanceof Tensor) || typeof AdamW !== 'function') throw new Error('the entries are not of one package');
model.dispose();
device.dispose();
`,
);
if (run('node', ['api.js'], inApp).trim() !== 'scored')
  fail('the embedded model does not score 6+7=13 above 6+7=14');
const without = run('npx', ['--no-install', 'steptrain', 'build'], { ...inApp, status: 1 });
if (!/needs g\+\+ and make and cmake, which this machine lacks: .* npx steptrain build/.test(without))
  fail(`steptrain build without a compiler said:\n${without}`);
say('the API works, and steptrain build names what it lacks');

// ---- what publint and attw find ---------------------------------------------------------------------------------------
for (const [tool, args] of [
  ['publint', ['run', tarball, '--strict']],
  ['attw', [tarball, '--profile', 'esm-only', '--no-emoji']],
]) {
  const program = join(root, 'node_modules/.bin', tool);
  if (existsSync(program)) {
    run(program, args, { cwd: root });
    say(`${tool} finds nothing`);
  } else say(`${tool} is not installed here and was left out`);
}

if (process.argv.includes('--build')) {
  run('npx', ['--no-install', 'steptrain', 'build', '--no-cuda'], {
    cwd: app,
    env: { ...env, PATH: process.env.PATH },
  });
  const now = npx('doctor');
  if (!now.includes('build/Release/steptrain.node')) fail(`the compiled addon is not loaded:\n${now}`);
  say('compiled from the installed package');
}
if (process.argv.includes('--git')) {
  for (const command of ['git', 'basename', 'sed', 'uname']) symlinkSync(onPath(command), join(bin, command));
  const from = join(folder, 'from-git');
  mkdirSync(from);
  writeFileSync(join(from, 'package.json'), '{ "private": true }\n');
  const inGit = { cwd: from, env };
  run('npm', ['install', ...quiet, `git+file://${root}`], inGit);
  const said = run('npx', ['--no-install', 'steptrain', 'doctor'], { ...inGit, status: 1 });
  if (!/npx steptrain build/.test(said)) fail(`without an addon steptrain doctor said:\n${said}`);
  say('a git dependency is installed without a compiler, and says how to compile the addon');
}
say('everything works');
