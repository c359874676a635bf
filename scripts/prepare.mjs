// npm runs this in a clone (`npm ci`) and where the package is a git dependency of another one;
// never in a package that was installed from a tarball or the registry.
//
// In a clone a build that fails is an error. npx starts what is there (bin/steptrain.mjs): it hides what this says, and while this
// runs it keeps every other npx waiting. In a git dependency a failure would fail the whole installation, with its reason hidden by npm: there the addon
// is compiled where that is possible, else later by `steptrain build`, as the loader says.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** npm installs what a git dependency needs with the first, in a clone of its own; then it packs that, with the second. */
const isGitDependency =
  process.env._PACOTE_NO_PREPARE_ !== undefined ||
  (process.env.npm_package_resolved !== undefined &&
    !['pack', 'publish', 'exec'].includes(process.env.npm_command));
const isNpx = process.env.npm_command === 'exec' && !isGitDependency;
// npm shows nothing of this.
const env = { ...process.env, ...(isGitDependency ? { STEPTRAIN_SCREEN: 'terminal' } : {}) };
const run = (...args) => spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit', env }).status ?? 1;

if (isNpx) process.exit(0);
if (!isGitDependency) process.exit(run('scripts/build.mjs'));
const status = run('scripts/build.mjs', '--no-addon');
if (status !== 0) process.exit(status);
// The package carries prebuilds/ and no build/.
if (
  run('scripts/build.mjs', '--no-typescript') === 0 &&
  existsSync(join(root, 'build/Release/steptrain.node'))
)
  run('scripts/prebuild.mjs', '--as-built');
