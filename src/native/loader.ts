/** Finds and loads the compiled addon; where nothing loads, says what was tried and what to do. */
import { existsSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { diagnosis, type FailedLoad, type Platform } from './diagnosis.js';
import { StepTrainError } from './errors.js';

export interface LoadedAddon {
  readonly path: string;
  readonly native: unknown;
  /** What was tried before. */
  readonly failures: readonly FailedLoad[];
}

const PACKAGE = fileURLToPath(new URL('../..', import.meta.url));

export function thisPlatform(): Platform {
  const { header } = process.report.getReport() as unknown as {
    readonly header: { readonly glibcVersionRuntime?: string };
  };
  const { platform, arch, versions } = process;
  return { platform, arch, node: versions.node, glibc: header.glibcVersionRuntime };
}

/** The addon that was compiled here comes before the one that the package carries; STEPTRAIN_ADDON names another. */
export function addonPaths(root: string, { platform, arch }: Pick<Platform, 'platform' | 'arch'>): string[] {
  const named = process.env.STEPTRAIN_ADDON;
  if (named) return [named];
  return [
    join(root, 'build', 'Release', 'steptrain.node'),
    join(root, 'prebuilds', `${platform}-${arch}`, 'steptrain.node'),
  ];
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
