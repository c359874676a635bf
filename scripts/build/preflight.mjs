// The tools that compiling needs, and the line that installs them on this system.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { onPath } from './machine.mjs';

/** Also in package.json. */
const OLDEST_NODE = [20, 19];

/** A sentence where this Node is older than the package runs on. */
export function oldNode(version = process.versions.node) {
  const [major, minor] = version.split('.').map(Number);
  const isOld = major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1]);
  return isOld
    ? `Node is ${version}, and steptrain needs ${OLDEST_NODE.join('.')} or newer: https://nodejs.org/en/download`
    : undefined;
}

/** Commands that the compilation calls: the oldest version, where that counts, and the packages that have them. */
const TOOLS = [
  { command: 'g++', oldest: [11], version: ['-dumpfullversion'], apt: 'g++', dnf: 'gcc-c++' },
  { command: 'make', apt: 'make', dnf: 'make' },
  { command: 'cmake', oldest: [3, 22], version: ['--version'], apt: 'cmake', dnf: 'cmake' },
];

const versionOf = (command, args) =>
  /\d+(?:\.\d+)+/.exec(spawnSync(command, args, { encoding: 'utf8' }).stdout ?? '')?.[0];

function isOlder(found, oldest) {
  const numbers = found.split('.').map(Number);
  const at = oldest.findIndex((each, i) => (numbers[i] ?? 0) !== each);
  return at >= 0 && (numbers[at] ?? 0) < oldest[at];
}

/** The values of /etc/os-release by their keys; empty where there is none. */
export function osRelease(path = '/etc/os-release') {
  if (!existsSync(path)) return {};
  const lines = readFileSync(path, 'utf8').matchAll(/^(\w+)="?([^"\n]*)"?$/gm);
  return Object.fromEntries([...lines].map(([, key, value]) => [key, value]));
}

/** The command line that installs `tools` on that system; undefined where it is neither of Debian's nor of Fedora's family. */
export function installLine(
  tools,
  { ID = '', ID_LIKE = '' } = osRelease(),
  isRoot = process.getuid?.() === 0,
) {
  const family = new Set(`${ID} ${ID_LIKE}`.split(' '));
  const sudo = isRoot ? '' : 'sudo ';
  const names = (system) => tools.map((tool) => tool[system]).join(' ');
  if (family.has('debian') || family.has('ubuntu'))
    return `${sudo}apt-get update && ${sudo}apt-get install -y ${names('apt')}`;
  if (['fedora', 'rhel', 'centos'].some((each) => family.has(each)))
    return `${sudo}dnf install -y ${names('dnf')}`;
  return undefined;
}

/** Where the addon comes from without a compiler. */
export const PACKAGE_WAY =
  'without a compiler, install the packages that npm pack makes on another machine (docs/getting-started/install.md)';

/**
 * One sentence where g++, make or CMake are missing or too old; undefined where all are there. `isClone` says which command is to
 * be called again. Of a compiler that CXX names, which CMake takes, nothing is asked.
 */
export function missingTools({ isClone, release = osRelease(), isRoot, cxx = process.env.CXX } = {}) {
  const tools = TOOLS.filter(({ command }) => !(cxx && command === 'g++'));
  const missing = tools.filter(({ command }) => !onPath(command));
  const again = isClone ? 'npm run build' : 'npx steptrain build';
  if (missing.length > 0) {
    const list = missing.map(({ command }) => command).join(' and ');
    const line = installLine(missing, release, isRoot);
    const what = line ? `${line} && ${again}` : `install ${list}, then ${again}`;
    return `compiling the addon needs ${list}, which this machine lacks: ${what}; ${PACKAGE_WAY}`;
  }
  for (const { command, oldest, version } of tools) {
    if (oldest === undefined) continue;
    const found = versionOf(command, version);
    if (found === undefined || !isOlder(found, oldest)) continue;
    const newer =
      command === 'g++'
        ? `install a newer one and name it: CXX=g++-12 ${again}`
        : `put a newer one first on the PATH, then ${again}`;
    return `compiling the addon needs ${command} ${oldest.join('.')} or newer, and this machine's is ${found}: ${newer}; ${PACKAGE_WAY}`;
  }
  return undefined;
}
