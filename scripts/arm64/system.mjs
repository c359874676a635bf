// The packages in a system of arm64 that has no compiler: the files of Debian's packages for arm64 and Node in a folder that qemu's
// user emulation takes for the root of what it looks up (-L). Whatever runs is emulated: npm, which installs, and the program.
// There is no kernel of arm64, nothing is emulated that a program starts (npm starts nothing, since no package has scripts), and
// `npx steptrain` is written as what it would start.
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { onPath } from '../build/machine.mjs';
import { emulator, fail, foreignNode, output, PROBLEM, root, run, TINY } from './node.mjs';

/** What Node and the addon are linked to, and what else a slim image has that either looks up. */
const PACKAGES = ['libc6', 'libgcc-s1', 'libstdc++6', 'base-files', 'netbase', 'ca-certificates'];

const say = (line) => console.error(`arm64 system: ${line}`);

/** Fills `system` from Debian's archive by an apt of its own, which knows nothing of this machine's packages. */
function fillSystem(system, folder) {
  const apt = join(folder, 'apt');
  for (const part of ['state/lists/partial', 'cache/archives/partial', 'files'])
    mkdirSync(join(apt, part), { recursive: true });
  writeFileSync(join(apt, 'status'), '');
  const options = [
    'APT::Architecture=arm64',
    'APT::Architectures=arm64',
    'APT::Sandbox::User=root',
    `Dir::State=${join(apt, 'state')}`,
    `Dir::State::status=${join(apt, 'status')}`,
    `Dir::Cache=${join(apt, 'cache')}`,
  ].flatMap((option) => ['-o', option]);
  run('apt-get', [...options, '-qq', 'update']);
  run('apt-get', [...options, '-qq', 'download', ...PACKAGES], { cwd: join(apt, 'files') });
  for (const file of readdirSync(join(apt, 'files')))
    run('dpkg-deb', ['-x', join(apt, 'files', file), system]);
}

/** `tarballs`: two of npm pack, steptrain's and that of arm64; without them they are made. */
export async function checkSystem(tarballs) {
  for (const tool of ['apt-get', 'dpkg-deb'])
    if (!onPath(tool)) fail(`the system of arm64 is made of Debian's packages, which needs ${tool}`);
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-arm64-system-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  if (tarballs.length === 0) run('npm', ['pack', '--pack-destination', folder]);
  const made = readdirSync(folder).filter((name) => /^steptrain-(linux-arm64-)?\d.*\.tgz$/.test(name));
  const packed =
    tarballs.length === 0
      ? made.map((name) => join(folder, name))
      : tarballs.map((name) => resolve(root, name));
  if (packed.length !== 2) fail("it needs two packages, steptrain's and that of its addon for arm64");
  for (const path of packed) if (!existsSync(path)) fail(`there is no ${path}`);

  const system = join(folder, 'root');
  for (const part of ['usr/bin', 'root', 'tmp']) mkdirSync(join(system, part), { recursive: true });
  fillSystem(system, folder);
  // Debian's root has its libraries in usr/lib, behind links that a package alone does not make.
  for (const name of ['lib', 'bin'])
    if (!existsSync(join(system, name))) symlinkSync(`usr/${name}`, join(system, name));
  copyFileSync(foreignNode(), join(system, 'usr/bin/node'));
  const app = join(folder, 'app');
  mkdirSync(app);
  writeFileSync(join(app, 'package.json'), '{ "private": true }\n');
  writeFileSync(join(app, 'problem.txt'), PROBLEM);

  const env = {
    PATH: join(system, 'usr/bin'),
    HOME: join(folder, 'home'),
    STEPTRAIN_CACHE: join(folder, 'cache'),
    // Of this machine alone: where npm finds packages.
    npm_config_registry: spawnSync('npm', ['config', 'get', 'registry'], { encoding: 'utf8' }).stdout.trim(),
    ...Object.fromEntries(
      Object.entries(process.env).filter(([name]) =>
        /^(https?_proxy|no_proxy|NODE_EXTRA_CA_CERTS)$/i.test(name),
      ),
    ),
  };
  for (const compiler of ['g++', 'gcc', 'cc', 'cmake', 'make', 'python3'])
    if (existsSync(join(system, 'usr/bin', compiler))) fail(`the system of arm64 has ${compiler}`);
  const node = (...args) =>
    output(emulator(), ['-L', system, '-cpu', 'max', join(system, 'usr/bin/node'), ...args], {
      cwd: app,
      env,
    });
  const began = performance.now();
  const minutes = () => `${((performance.now() - began) / 60_000).toFixed(1)} min`;
  const globals = spawnSync('npm', ['root', '-g'], { encoding: 'utf8' }).stdout.trim();
  node(
    join(globals, 'npm/bin/npm-cli.js'),
    'install',
    '--no-audit',
    '--no-fund',
    '--prefer-offline',
    ...packed,
  );
  say(`installed without a compiler, ${minutes()}`);

  const steptrain = (...args) => node('node_modules/.bin/steptrain', ...args);
  const doctor = steptrain('doctor');
  if (!doctor.includes('@steptrain/linux-arm64/steptrain.node')) fail('another addon was loaded');
  if (!/^self-test +\w+ passed/m.test(doctor)) fail('no self-test has passed');
  if (/^cuda +not in this build/m.test(doctor)) say('the addon has no CUDA kernels');
  else if (!/^cuda +built in, but /m.test(doctor)) fail('doctor finds a GPU, and none is emulated');
  say(`doctor is content, ${minutes()}`);
  const trained = steptrain(
    'run',
    'quickstart_sft',
    '--output',
    'trained',
    ...TINY.flatMap((each) => ['--set', each]),
  );
  if (!/F1 macro/.test(trained)) fail('steptrain run printed no table');
  say(`trained, ${minutes()}`);
  steptrain('judge', 'word-problems-judge', 'problem.txt');
  const question = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
  if (!/19/.test(steptrain('generate', '--model', 'word-problems', question)))
    fail('the model of the package does not find 12 + 7');
  say(`judged and generated, ${minutes()}`);
}
