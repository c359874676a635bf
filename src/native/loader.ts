/** Finds and loads the compiled addon; where nothing loads, the error lists the tries and the remedy. */
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { attempt } from './attempt.js';
import { diagnosis, type FailedLoad, type Platform } from './diagnosis.js';
import { StepTrainError } from './errors.js';
import { packageVersion, runtimeVersion } from './version.js';

export interface LoadedAddon {
  readonly path: string;
  readonly native: unknown;
  /** Failures of earlier tries. */
  readonly failures: readonly FailedLoad[];
}

const PACKAGE = fileURLToPath(new URL('../..', import.meta.url));

export function thisPlatform(): Platform {
  const { header } = process.report.getReport() as unknown as {
    readonly header: { readonly glibcVersionRuntime?: string };
  };
  const { platform, arch, versions } = process;
  // Deno's report has the same version everywhere.
  const glibc = versions.deno ? 'unknown' : header.glibcVersionRuntime;
  return { platform, arch, runtime: runtimeVersion(), glibc };
}

/**
 * The addon that was compiled here comes before that of `npm pack` in a clone or of a git dependency, and that before the one of the
 * platform's package; STEPTRAIN_ADDON names another.
 */
export function addonPaths(root: string, { platform, arch }: Pick<Platform, 'platform' | 'arch'>): string[] {
  const named = process.env.STEPTRAIN_ADDON;
  if (named) return [named];
  return [
    join(root, 'build', 'Release', 'steptrain.node'),
    join(root, 'prebuilds', `${platform}-${arch}`, 'steptrain.node'),
    platformAddon(root, `@steptrain/${platform}-${arch}`),
  ];
}

/** The path at which npm installs that package, whether or not it did. */
function platformAddon(root: string, name: string): string {
  return attempt(
    () => createRequire(join(root, 'package.json')).resolve(`${name}/steptrain.node`),
    join(root, 'node_modules', name, 'steptrain.node'),
  );
}

/** Refuses a package of another version, which npm takes where it is named and the right one was not found. */
function checkVersion(path: string): void {
  const manifest = join(dirname(path), 'package.json');
  if (!existsSync(manifest)) return;
  const { name, version } = JSON.parse(readFileSync(manifest, 'utf8')) as Record<string, string>;
  if (name?.startsWith('@steptrain/') && version !== packageVersion())
    throw new Error(`${name} is ${version}, and steptrain ${packageVersion()}`);
}

/** @throws StepTrainError E_ADDON with every path, its failure, and the commands that mend it */
export function loadAddon(root = PACKAGE): LoadedAddon {
  const require = createRequire(import.meta.url);
  const platform = thisPlatform();
  const failures: FailedLoad[] = [];
  let cause: unknown;
  for (const path of addonPaths(root, platform)) {
    if (!existsSync(path)) {
      failures.push({ path });
      continue;
    }
    try {
      checkVersion(path);
      return { path: realpathSync(path), native: require(realpathSync(path)), failures };
    } catch (error) {
      cause = error;
      failures.push({
        path,
        reason: error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error),
      });
    }
  }
  throw new StepTrainError('E_ADDON', diagnosis(failures, platform), { cause });
}
