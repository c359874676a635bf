/** A hub id, allowed instead of a path: `owner/name`, optionally with `@revision` and, for data, `:selection`. */
export interface HubId {
  /** `owner/name` */
  readonly repo: string;
  /** Branch, tag, `refs/pr/N` or commit. Default `main`. */
  readonly revision: string;
  /** The chosen files of a data set; see `selectDataFiles`. */
  readonly selection?: string;
}

const NAME = '[A-Za-z0-9_](?:[\\w.-]{0,94}[A-Za-z0-9_])?';
const HUB_ID = new RegExp(`^(${NAME})/(${NAME})(?:@([\\w./-]+))?(?::([^:]+))?$`);

/** First parts of the hub's own URLs and of common paths, which are no owner names on the hub. */
const NO_OWNER = /^(models|datasets|spaces|api|tokenizers)$/i;

/** A path with such an ending is a missing file, not a repository. */
const FILE_NAME = /\.(jsonl?|ndjson|gz|parquet|csv|tsv|txt|zip|ya?ml|safetensors|bin|git)$/i;

const COMMIT = /^[0-9a-f]{40}$/;

/** Parses a hub id; undefined if `text` can only be a path. */
export function parseHubId(text: string): HubId | undefined {
  const [, owner = '', name = '', revision = 'main', selection] = HUB_ID.exec(text) ?? [];
  if (owner === '' || NO_OWNER.test(owner) || FILE_NAME.test(name)) return undefined;
  if (/--|\.\./.test(owner + name) || revision.split('/').some((part) => /^\.*$/.test(part)))
    return undefined;
  return { repo: `${owner}/${name}`, revision, ...(selection === undefined ? {} : { selection }) };
}

/** Whether a revision is a full commit hash, whose content never changes. */
export function isCommit(revision: string): boolean {
  return COMMIT.test(revision);
}
