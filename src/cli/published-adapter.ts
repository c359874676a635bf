/** The files of an adapter as they go to the hub: without names of this machine's folders, and with a card. */
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { formatEvalTable } from '../eval/reports/report-table.js';
import { formatSolvedReport } from '../eval/solving/run-report.js';
import { type HubId, parseHubId } from '../hub/hub-id.js';
import type { PushedFile } from '../hub/push.js';
import { hubFetch } from '../hub/request.js';
import type { HubSettings } from '../hub/settings.js';
import { isShipped } from '../models/base.js';
import { CARD, readCard } from '../models/card.js';
import { namedModel } from '../models/saved.js';
import { packageVersion } from '../native/version.js';
import { collectRun } from '../report/collect.js';
import { adapterReadme } from '../report/model-card.js';
import { readAdapterConfig } from '../weights/adapter.js';
import { UsageError } from './line/error.js';

export interface PublishOptions {
  readonly repo: string;
  /** The base on the hub; default: as the adapter names it. */
  readonly base: string | undefined;
  readonly settings: HubSettings;
}

/**
 * @param path a run, or an adapter
 * @throws UsageError where there is no adapter, or where its base is a folder of this machine and `base` does not name it
 */
export async function publishedAdapter(path: string, options: PublishOptions): Promise<PushedFile[]> {
  const { kind, adapter: directory } = namedModel(path);
  const isRun = kind === 'run';
  if (directory === undefined) {
    throw new UsageError(
      isRun
        ? `${path} holds no adapter: its training has not ended, or it trained a whole model; hub push sends adapters`
        : `${path} is neither a run directory nor an adapter directory (there is no adapter_config.json)`,
    );
  }
  const card = readCard(directory);
  const named = card?.base ?? readAdapterConfig(directory).baseModel;
  const base = options.base ?? baseOnHub(named, directory);
  const files = await Promise.all(
    (await readdir(directory, { withFileTypes: true }))
      .filter((entry) => entry.isFile() && !entry.name.startsWith('.'))
      .map(
        async ({ name }): Promise<PushedFile> => ({
          path: name,
          content: await readFile(join(directory, name)),
        }),
      ),
  );
  const renamed = files.map((file) => {
    const key =
      file.path === CARD
        ? 'base'
        : file.path === 'adapter_config.json'
          ? 'base_model_name_or_path'
          : undefined;
    return key === undefined || base === undefined
      ? file
      : { ...file, content: withValue(file.content, key, base) };
  });
  // A page that somebody wrote stays.
  if (renamed.some(({ path }) => path === 'README.md')) return renamed;
  const run = isRun ? await collectRun(path) : undefined;
  const evaluation = run?.report
    ? formatEvalTable(run.report, { boxed: false })
    : run?.solved && formatSolvedReport(run.solved, { boxed: false });
  const readme = adapterReadme({
    repo: options.repo,
    method: card?.method ?? 'unknown',
    base,
    licence: base === undefined ? undefined : await licenceOf(base, options.settings),
    evaluation,
    config: run?.configText,
    version: packageVersion(),
  });
  return [{ path: 'README.md', content: Buffer.from(readme) }, ...renamed];
}

/** `owner/name` of a base that came from the hub; undefined for one of the package. */
function baseOnHub(named: string | undefined, directory: string): string | undefined {
  if (named !== undefined && isShipped(named)) return undefined;
  // A path in the cache has the name in it.
  const [, owner, name] = /models--([^/\\]+)--([^/\\]+)[/\\]snapshots/.exec(named ?? '') ?? [];
  if (owner !== undefined) return `${owner}/${name}`;
  const id = named === undefined || existsSync(named) ? undefined : parseHubId(named);
  if (id !== undefined) return id.repo;
  throw new UsageError(
    `the base of ${directory} is ${named ?? 'not named'}, which nobody else has; name it on the hub with --base owner/name`,
  );
}

function withValue(content: Uint8Array, key: string, value: string): Uint8Array {
  const json = JSON.parse(new TextDecoder().decode(content)) as Record<string, unknown>;
  return Buffer.from(`${JSON.stringify({ ...json, [key]: value }, null, 2)}\n`);
}

/** The licence on the page of the base; undefined if it names none, or cannot be read. */
async function licenceOf(base: string, settings: HubSettings): Promise<string | undefined> {
  if (settings.offline) return undefined;
  const id = parseHubId(base) as HubId;
  const request = { settings, what: `model ${base}`, page: base, revision: id.revision };
  try {
    const answer = await hubFetch(request, `${settings.endpoint}/api/models/${id.repo}`);
    const { cardData } = (await answer.json()) as { cardData?: { license?: unknown } };
    return typeof cardData?.license === 'string' ? cardData.license : undefined;
  } catch {
    return undefined;
  }
}
