/** What a configuration may name instead of a path: `owner/name`, with `@revision` and, for data, `:selection` behind it. */
export interface HubId {
  /** `owner/name` */
  readonly repo: string;
  /** Branch, tag, `refs/pr/N` or commit. Default `main`. */
  readonly revision: string;
  /** Which files of a data set; see `selectDataFiles`. */
  readonly selection?: string;
}

const NAME = '[A-Za-z0-9_](?:[\\w.-]{0,94}[A-Za-z0-9_])?';
const HUB_ID = new RegExp(`^(${NAME})/(${NAME})(?:@([\\w./-]+))?(?::([^:]+))?$`);

/** First parts of the hub's own addresses, and of paths that people have: nobody on the hub is called so. */
const NO_OWNER = /^(models|datasets|spaces|api)$/i;

/** A path that ends so is a file that is not there, not a repository. */
const FILE_NAME = /\.(jsonl?|ndjson|gz|parquet|csv|tsv|txt|zip|ya?ml|safetensors|bin|git)$/i;

const COMMIT = /^[0-9a-f]{40}$/;

/** The hub id that `text` spells, or undefined where it can only be a path. */
export function parseHubId(text: string): HubId | undefined {
  const [, owner = '', name = '', revision = 'main', selection] = HUB_ID.exec(text) ?? [];
  if (owner === '' || NO_OWNER.test(owner) || FILE_NAME.test(name)) return undefined;
  if (/--|\.\./.test(owner + name) || revision.split('/').some((part) => /^\.*$/.test(part)))
    return undefined;
  return { repo: `${owner}/${name}`, revision, ...(selection === undefined ? {} : { selection }) };
}

/** Whether a revision is a full commit, which never changes what it stands for. */
export function isCommit(revision: string): boolean {
  return COMMIT.test(revision);
}
