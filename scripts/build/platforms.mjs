// The packages that carry the addon, one a platform: npm installs the one that fits, as an optional dependency of steptrain.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const PROCESSORS = ['x64', 'arm64'];
const nameOf = (arch) => `@steptrain/linux-${arch}`;

/** What steptrain's own manifest says of them, of the same version. */
export const optionalDependencies = ({ version }) =>
  Object.fromEntries(PROCESSORS.map((arch) => [nameOf(arch), version]));

/** The folder of the package with that addon, as prebuildify names it. */
export const folderOf = (root, arch) => join(root, `prebuilds/linux-${arch}`);

/** Makes a package of that folder, in which the addon is. `gpus`: for which it holds code. */
export function writePlatformPackage(root, arch, gpus) {
  const { version, license } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const folder = folderOf(root, arch);
  const description = `The compiled addon of steptrain for Linux on ${arch}, ${gpus}`;
  const manifest = {
    name: nameOf(arch),
    version,
    description,
    license,
    os: ['linux'],
    cpu: [arch],
    libc: ['glibc'],
    main: './steptrain.node',
    files: ['steptrain.node'],
  };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  writeFileSync(
    join(folder, 'README.md'),
    `# ${manifest.name}\n\n${description}. It belongs to the package steptrain of the same version, which loads it.\n`,
  );
  copyFileSync(join(root, 'LICENSE'), join(folder, 'LICENSE'));
}
