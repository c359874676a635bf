// Endpoint and cache directory, from the environment variables of huggingface_hub.
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { attempt } from '../native/attempt.js';

export interface HubSettings {
  /** `HF_ENDPOINT`, without a slash at its end. Default https://huggingface.co */
  readonly endpoint: string;
  /** `HF_HUB_CACHE`, else `$HF_HOME/hub`. */
  readonly cache: string;
  /** `HF_HUB_OFFLINE`: use nothing but the cache. */
  readonly offline: boolean;
  /** `HF_TOKEN`, else what `hf auth login` wrote to `$HF_HOME/token`. Sent only to the endpoint. */
  readonly token: string | undefined;
}

export function hubSettings(env: NodeJS.ProcessEnv = process.env): HubSettings {
  const userCache = env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const home = expanded(env.HF_HOME || join(userCache, 'huggingface'));
  return {
    endpoint: (env.HF_ENDPOINT || 'https://huggingface.co').replace(/\/+$/, ''),
    cache: expanded(env.HF_HUB_CACHE || join(home, 'hub')),
    offline: /^(1|true|yes|on)$/i.test(env.HF_HUB_OFFLINE ?? ''),
    token:
      env.HF_TOKEN?.trim() || attempt(() => readFileSync(join(home, 'token'), 'utf8').trim()) || undefined,
  };
}

function expanded(path: string): string {
  return resolve(path.replace(/^~(?=$|\/)/, homedir()));
}
