import { homedir } from 'node:os';
import { join } from 'node:path';

/**
 * The directory of steptrain's cache: `STEPTRAIN_CACHE`, else `$XDG_CACHE_HOME/steptrain`, else `~/.cache/steptrain`.
 */
export function cacheDirectory(env: NodeJS.ProcessEnv = process.env): string {
  return env.STEPTRAIN_CACHE || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'steptrain');
}
