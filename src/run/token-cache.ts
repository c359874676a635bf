// Caches tokenised data for later runs with the same texts, tokenizer, prompt and code.
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { DataConfig, ModelConfig } from '../config/schema.js';
import { dataFiles } from '../data/files.js';
import type { LabelRules } from '../data/label-rules.js';
import { TokenStore } from '../data/token-store.js';
import { trainingFiles } from '../data/training-files.js';
import type { VerdictTemplate } from '../data/verdict.js';
import { cacheDirectory } from '../files/cache.js';
import { contentHash } from '../files/content-hash.js';
import { badFile } from '../files/data-error.js';
import { systemReason } from '../files/error.js';
import { unfinished } from '../files/unfinished.js';
import { tokenizerDirectory } from '../models/base.js';
import { toLog } from '../terminal/log.js';

/** Entries that were not opened for this long are deleted. */
const KEPT_MS = 30 * 24 * 3600 * 1000;

/** Everything that determines the content of a store. */
export interface TokenSource {
  readonly data: DataConfig;
  readonly model: Pick<ModelConfig, 'base' | 'tokenizer'>;
  readonly template: VerdictTemplate;
  readonly labels?: LabelRules | undefined;
}

/**
 * Opens the store of `source`, or has `write` create it in an empty directory. A damaged entry is created again. If the
 * cache cannot be written, the store goes to the temporary directory and is not kept.
 *
 * @param write resolves to false if it was stopped; then there is no store
 */
export async function cachedTokenStore(
  source: TokenSource,
  write: (directory: string) => Promise<boolean>,
): Promise<TokenStore | undefined> {
  const folder = join(cacheDirectory(), 'tokens');
  const entry = join(folder, await contentKey(source));
  const known = await TokenStore.open(entry);
  if (known !== undefined) {
    const now = new Date();
    await utimes(entry, now, now).catch(() => {});
    return known;
  }
  const place = await workingDirectory(folder);
  const whole = unfinished(place.path);
  try {
    if (!(await write(place.path))) return undefined;
    // Open files stay readable after their folder is moved or deleted.
    const made = await TokenStore.open(place.path);
    if (made === undefined) {
      throw badFile('what was just written cannot be read back; check the disk', {
        file: place.path,
      });
    }
    if (place.isKept) {
      await keep(place.path, entry);
      await removeOld(folder);
    }
    return made;
  } finally {
    await rm(place.path, { recursive: true, force: true });
    whole();
  }
}

/** Renames a finished store to its final name, unless another process has created the same one meanwhile. */
async function keep(path: string, entry: string): Promise<void> {
  const move = () =>
    rename(path, entry).then(
      () => true,
      () => false,
    );
  if (await move()) return;
  const other = await TokenStore.open(entry);
  other?.close();
  if (other !== undefined) return;
  await rm(entry, { recursive: true, force: true });
  await move();
}

async function workingDirectory(
  folder: string,
): Promise<{ readonly path: string; readonly isKept: boolean }> {
  const path = join(folder, `tmp-${process.pid}-${randomBytes(6).toString('hex')}`);
  try {
    await mkdir(path, { recursive: true });
    return { path, isKept: true };
  } catch (error) {
    toLog(
      `the cache ${folder} cannot be written (${systemReason(error)}); tokenised data is not kept for the next run ` +
        '(STEPTRAIN_CACHE names another place)',
    );
    return { path: await mkdtemp(join(tmpdir(), 'steptrain-tokens-')), isKept: false };
  }
}

async function removeOld(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    const info = await stat(path).catch(() => undefined);
    if (info !== undefined && Date.now() - info.mtimeMs > KEPT_MS) {
      await rm(path, { recursive: true, force: true });
    }
  }
}

/** A hash of everything the tokens depend on. Limits and selections that apply later are left out. */
async function contentKey({ data, model, template, labels }: TokenSource): Promise<string> {
  const {
    max_length: _,
    max_samples: _samples,
    balance: _balance,
    labelled: _labelled,
    label_noise: _noise,
    ...settings
  } = data;
  const hash = createHash('sha256');
  const put = (part: unknown) => hash.update(`${JSON.stringify(part)}\0`);
  put(codeHash());
  put(settings);
  put(template);
  put(labels ?? null);
  for (const path of [...trainingFiles(data.train).map(({ path }) => path), data.validation, data.test]) {
    for (const file of path === undefined ? [] : await dataFiles(path)) put([file, await contentHash(file)]);
  }
  const tokenizer = model.tokenizer === 'base' ? model.base : model.tokenizer;
  put(typeof tokenizer === 'string' ? await tokenizerHash(tokenizer) : tokenizer);
  return hash.digest('hex').slice(0, 40);
}

/**
 * Hash of the tokenizer: the name of `embedded` and `bytes`, which are part of the code; for a directory, the files
 * that it may read.
 */
async function tokenizerHash(directory: string): Promise<string> {
  const folder = tokenizerDirectory(directory);
  const names = (await readdir(folder, { recursive: true }).catch(() => []))
    .filter((name) => /(token.*\.json(\.gz)?|\.jinja)$/.test(name))
    .sort();
  const hash = createHash('sha256').update(
    directory === 'bytes' || directory === 'embedded' ? directory : '',
  );
  for (const name of names) hash.update(`${name}\0`).update(await readFile(join(folder, name)));
  return hash.digest('hex');
}

let code: string | undefined;

/** A hash of the modules that read, split and tokenise, and of the tokenizer library's version. */
function codeHash(): string {
  if (code !== undefined) return code;
  const hash = createHash('sha256');
  for (const room of ['../records', '../random', '../data', '../tokenizer', '.']) {
    const folder = fileURLToPath(new URL(room, import.meta.url));
    const names = readdirSync(folder, { recursive: true }).map(String);
    for (const name of names.filter((name) => /\.[jt]s$/.test(name) && !name.endsWith('.d.ts')).sort()) {
      hash.update(`${name}\0`).update(readFileSync(join(folder, name)));
    }
  }
  const library = new URL('../../package.json', import.meta.url);
  code = hash.update(readFileSync(library)).digest('hex');
  return code;
}
