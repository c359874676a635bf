// Builds the addon and the TypeScript, each only when its sources changed.
//   --all             the addon for every machine: all instruction sets and, where there is nvcc, CUDA. Else it is for this
//                     machine: its instruction sets, and CUDA where there is a GPU
//   --no-addon, --no-typescript
//   --arch=arm64      the addon for that processor, into build/arm64, by a compiler for it; nothing else. CUDA only with --all
//   --mpi             also the MPI plugin, with the mpicxx of this machine; --mpi-if-any: where there is one
//   --bench           also the benchmarks and examples
//   --force           also what has not changed
//   --verbose         what the compilers say, as they say it
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { compileAddon, run } from './build/compile.mjs';
import { contentHash, readStamp, removeStamp, sources, writeStamp } from './build/fresh.mjs';
import { lockBuild } from './build/lock.mjs';
import { addonPlan, crossCompiler, crossPlan, onPath } from './build/machine.mjs';
import { compileMpi, PLUGIN } from './build/mpi.mjs';
import { writeOpTypes } from './build/op-types.mjs';
import { missingTools, oldNode } from './build/preflight.mjs';
import { say } from './build/progress.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(import.meta.url);
const flags = new Set(process.argv.slice(2));
const verbose = flags.has('--verbose');
const force = flags.has('--force');
const ADDON = join(root, 'build/Release/steptrain.node');

function addonLoads() {
  try {
    require(ADDON);
    return true;
  } catch {
    return false;
  }
}

/** Whether `stamp` is of these sources and its addon loads here. */
const isOurs = (stamp, hash) => stamp?.sources === hash && addonLoads();

/** Whether that addon holds everything that is wanted; it may hold more. */
function holds(stamp, { isas, cuda }, strict) {
  const built = new Set([...stamp.isas, ...stamp.architectures]);
  const wanted = [...isas, ...(cuda ? cuda.architectures.split(';') : [])];
  return wanted.every((each) => built.has(each)) && (stamp.strict || !strict);
}

const strict = process.env.STEPTRAIN_STRICT === '1';

function addonHash() {
  const files = ['core', 'carriers', 'cpu', 'cuda', 'binding', 'CMakeLists.txt'];
  return contentHash(root, sources(root, files, ['.cc', '.h', '.cu', '.cuh', '.cmake']));
}

const stampOf = (hash, { isas, cuda }) => ({
  sources: hash,
  isas,
  architectures: cuda?.architectures.split(';') ?? [],
  strict,
});

/** For a processor that this machine is not. */
async function buildCross(arch) {
  checkTools();
  const [name, folder, hash, plan] = [
    `addon-${arch}`,
    `build/${arch}`,
    addonHash(),
    crossPlan(arch, flags.has('--all')),
  ];
  const { definitions } = crossCompiler(arch, plan.cuda);
  const isFresh = () => {
    const stamp = readStamp(root, name);
    const isThere = existsSync(join(root, folder, 'Release/steptrain.node'));
    return stamp?.sources === hash && isThere && holds(stamp, plan, strict);
  };
  await unlessFresh(isFresh, async () => {
    removeStamp(root, name);
    await compileAddon(root, plan, { strict, verbose, force, folder, cross: definitions });
    writeStamp(root, name, stampOf(hash, plan));
  });
}

/** A file that only a clone has. */
const isClone = existsSync(join(root, 'tsconfig.build.json'));

function checkTools() {
  const missing = missingTools({ isClone });
  if (missing) throw new Error(missing);
}

/** The work that the addon needs; a tool that the machine lacks is named at once, before anything is compiled. */
function plannedAddon() {
  const hash = addonHash();
  const plan = addonPlan(flags.has('--all'));
  const isFresh = () => {
    const stamp = readStamp(root, 'addon');
    return isOurs(stamp, hash) && holds(stamp, plan, strict);
  };
  if (force || !isFresh()) checkTools();
  return { hash, plan, isFresh };
}

async function buildAddon({ hash, plan, isFresh }) {
  await unlessFresh(isFresh, async () => {
    // If it fails or is killed, what is there may be of either.
    removeStamp(root, 'addon');
    if (!addonLoads()) rmSync(ADDON, { force: true });
    await compileAddon(root, plan, { strict, verbose, force });
    writeStamp(root, 'addon', stampOf(hash, plan));
  });
}

/** Given back at the end. What is fresh waits for nobody. */
let unlock;

async function unlessFresh(isFresh, build) {
  if (isFresh() && !force) return;
  unlock ??= await lockBuild(join(root, 'build/.lock'), say);
  if (isFresh() && !force) return;
  await build();
}

/** Runs `build` unless `files` are those of its last success. */
function step(name, files, output, build) {
  const hash = contentHash(root, files);
  const isFresh = () => readStamp(root, name)?.sources === hash && existsSync(join(root, output));
  return unlessFresh(isFresh, async () => {
    await build();
    writeStamp(root, name, { sources: hash });
  });
}

function buildTypeScript(name, project, folders, output) {
  const files = sources(root, [...folders, project, 'tsconfig.json', 'package-lock.json'], ['.ts']);
  return step(name, files, output, async () => {
    const known = join(root, 'build', `${name}.tsbuildinfo`);
    // tsc writes only what changed since `known`, and would not notice that its output is gone.
    if (!existsSync(join(root, output)) || force) rmSync(known, { force: true });
    const incremental = ['--incremental', '--tsBuildInfoFile', known];
    await run(
      root,
      process.execPath,
      [require.resolve('typescript/bin/tsc'), ...['-p', project], ...incremental],
      { verbose },
    );
  });
}

/** In the order of the cascade. */
const STYLES = ['colours', 'elements', 'frame', 'head', 'tables', 'plots', 'texts', 'media'].map(
  (name) => `src/report/style/${name}.css`,
);

/** Script and style of the report's pages, each one file, since a page carries them inside itself. */
function buildPages() {
  const folder = 'src/report/browser';
  const files = sources(root, [folder, 'src/report/style', 'package-lock.json'], ['.ts', '.css']);
  return step('pages', files, 'dist/report/browser.js', async () => {
    const bundle = [
      '--file',
      'dist/report/browser.js',
      '--format',
      'iife',
      '--minify',
      '--platform',
      'browser',
    ];
    const rolldown = join(dirname(require.resolve('rolldown/package.json')), 'bin/cli.mjs');
    await run(root, process.execPath, [rolldown, join(folder, 'page.ts'), ...bundle], { verbose });
    const style = [require.resolve('uplot/dist/uPlot.min.css'), ...STYLES.map((path) => join(root, path))];
    writeFileSync(
      join(root, 'dist/report/browser.css'),
      style.map((path) => readFileSync(path, 'utf8')).join('\n'),
    );
  });
}

/** What editors complete and check recipes with. */
function buildRecipeSchema() {
  const path = 'recipes/recipe.schema.json';
  return step('schema', sources(root, ['src', 'package-lock.json'], ['.ts']), path, async () => {
    const { recipeSchema } = await import(pathToFileURL(join(root, 'dist/methods/config.js')).href);
    writeFileSync(join(root, path), `${JSON.stringify(recipeSchema(), null, 1)}\n`);
  });
}

async function build() {
  const arch = [...flags].find((flag) => flag.startsWith('--arch='))?.slice('--arch='.length);
  if (flags.has('--arch')) throw new Error('--arch is written with an equals sign: --arch=arm64');
  const old = oldNode();
  if (old) throw new Error(old);
  if (isClone && !existsSync(join(root, 'node_modules')))
    throw new Error('the packages that this needs are not installed: npm ci');
  if (arch !== undefined && arch !== process.arch) return buildCross(arch);
  const addon = flags.has('--no-addon') ? undefined : plannedAddon();
  if (!flags.has('--no-typescript')) {
    writeOpTypes(root);
    await buildTypeScript('typescript', 'tsconfig.build.json', ['src'], 'dist/entries/index.js');
    await buildPages();
    await buildRecipeSchema();
  }
  if (addon) await buildAddon(addon);
  if (flags.has('--mpi') || (flags.has('--mpi-if-any') && onPath('mpicxx')))
    await step('mpi', sources(root, ['carriers/carrier.h', 'carriers/mpi.cc'], ['']), PLUGIN, () =>
      compileMpi(root, { verbose }),
    );
  if (flags.has('--bench'))
    await buildTypeScript(
      'bench',
      'tsconfig.bench.json',
      ['bench', 'examples', 'dist'],
      'build/ts/bench/main.js',
    );
}

try {
  await build();
} catch (error) {
  say(error.message);
  process.exitCode = 1;
} finally {
  unlock?.();
}
