// Uploading files to a repository of the hub as one commit: create, ask how each file goes, store the large ones, commit.
import { createHash } from 'node:crypto';
import { isRow } from '../data/columns.js';
import { attempt } from '../native/attempt.js';
import { HubError, hubFailed, refusedByHub } from './error.js';
import { unreachable } from './request.js';
import type { HubSettings } from './settings.js';

/** A file to upload. */
export interface PushedFile {
  /** Path in the repository, with `/` between folders. */
  readonly path: string;
  readonly content: Uint8Array;
}

export interface PushOptions {
  readonly settings: HubSettings;
  /** `owner/name`; made if it is not there. */
  readonly repo: string;
  readonly revision?: string;
  /** Whether a repository that this call creates is private. */
  readonly private?: boolean;
  readonly message: string;
  readonly signal?: AbortSignal;
  readonly onFile?: (path: string, bytes: number) => void;
}

/** Size of the beginning of a large file by which the hub may tell text from weights. */
const SAMPLE_BYTES = 512;

/** A stored file may take longer than any answer; a silent connection may not. */
const UPLOAD_MS = 60 * 60 * 1000;
const ANSWER_MS = 60_000;

/**
 * Uploads `files` as one commit to a model repository. Nothing of the repository changes before the last request; calling it again
 * after a failure sends what the storage does not have yet.
 *
 * @returns the page of the commit
 * @throws HubError: `refused` without a token or for one that may not write, `network` if the hub cannot be reached or answers something
 *   else than expected
 */
export async function pushFiles(files: readonly PushedFile[], options: PushOptions): Promise<string> {
  const { settings, repo, revision = 'main', message } = options;
  if (settings.offline)
    throw new HubError('offline', 'HF_HUB_OFFLINE is set, so nothing can be sent; unset it');
  if (settings.token === undefined)
    throw refusedByHub('sending to the hub needs a token that may write: set HF_TOKEN, or use hf auth login');
  const api = `${settings.endpoint}/api`;
  const [organization, name] = repo.split('/') as [string, string];
  const visibility = options.private === true ? { private: true } : {};
  await post(`${api}/repos/create`, { type: 'model', name, organization, ...visibility }, options, {
    accepted: [409],
  });
  const branch = encodeURIComponent(revision);
  const modes = await uploadModes(`${api}/models/${repo}/preupload/${branch}`, files, options);
  const stored = files.filter(({ path, content }) => content.length > 0 && modes.get(path) === 'lfs');
  const large = new Map(
    stored.map((file) => [file.path, createHash('sha256').update(file.content).digest('hex')]),
  );
  if (stored.length > 0) await storeLarge(stored, large, options);
  const lines = [
    { key: 'header', value: { summary: message, description: '' } },
    ...files.map(({ path, content }) => {
      const oid = large.get(path);
      return oid === undefined
        ? { key: 'file', value: { content: base64(content), path, encoding: 'base64' } }
        : { key: 'lfsFile', value: { path, algo: 'sha256', oid, size: content.length } };
    }),
  ];
  const answer = await post(
    `${api}/models/${repo}/commit/${branch}`,
    lines.map((line) => JSON.stringify(line)).join('\n'),
    options,
    { type: 'application/x-ndjson' },
  );
  return isRow(answer) && typeof answer.commitUrl === 'string'
    ? answer.commitUrl
    : `${settings.endpoint}/${repo}`;
}

/** Whether each file goes into the commit itself (`regular`) or into the storage of large files (`lfs`). */
async function uploadModes(
  url: string,
  files: readonly PushedFile[],
  options: PushOptions,
): Promise<ReadonlyMap<string, unknown>> {
  const asked = files.map(({ path, content }) => ({
    path,
    size: content.length,
    sample: base64(content.subarray(0, SAMPLE_BYTES)),
  }));
  const answer = await post(url, { files: asked }, options);
  const told = isRow(answer) && Array.isArray(answer.files) ? answer.files.filter(isRow) : [];
  const modes = new Map(told.map(({ path, uploadMode }) => [String(path), uploadMode]));
  const [missing] = files.filter(({ path }) => !['regular', 'lfs'].includes(modes.get(path) as string));
  if (missing) throw nonsense(options, `does not say how ${missing.path} is to be sent`);
  return modes;
}

/** The batch interface of Git LFS with basic transfers: one PUT for each object that the storage does not have. */
async function storeLarge(
  files: readonly PushedFile[],
  oids: ReadonlyMap<string, string>,
  options: PushOptions,
): Promise<void> {
  const { settings, repo } = options;
  const objects = files.map(({ path, content }) => ({ oid: oids.get(path), size: content.length }));
  const answer = await post(
    `${settings.endpoint}/${repo}.git/info/lfs/objects/batch`,
    { operation: 'upload', transfers: ['basic'], hash_algo: 'sha256', objects },
    options,
    { type: 'application/vnd.git-lfs+json' },
  );
  const told = isRow(answer) && Array.isArray(answer.objects) ? answer.objects.filter(isRow) : [];
  for (const { path, content } of files) {
    const oid = oids.get(path);
    const object = told.find((found) => found.oid === oid);
    if (object === undefined || isRow(object.error)) throw nonsense(options, `refuses to store ${path}`);
    const actions = isRow(object.actions) ? object.actions : {};
    if (actions.upload !== undefined) {
      await put(actionOf(actions.upload, options), content, path, options);
      if (actions.verify !== undefined)
        await post(actionOf(actions.verify, options).url, { oid, size: content.length }, options);
    }
    options.onFile?.(path, content.length);
  }
}

interface Action {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

function actionOf(value: unknown, options: PushOptions): Action {
  const { href, header } = isRow(value) ? value : {};
  if (typeof href !== 'string' || !/^https?:\/\//.test(href))
    throw nonsense(options, 'gives no address to store a file at');
  const headers = Object.entries(isRow(header) ? header : {}).map(([name, text]) => [name, String(text)]);
  return { url: href, headers: Object.fromEntries(headers) };
}

/** Uploads to the storage behind the hub, without the token. */
async function put(
  { url, headers }: Action,
  content: Uint8Array,
  path: string,
  options: PushOptions,
): Promise<void> {
  const response = await send(
    url,
    { method: 'PUT', headers, body: Buffer.from(content) },
    options,
    UPLOAD_MS,
  );
  await response.body?.cancel();
  if (!response.ok)
    throw hubFailed(
      `the storage of the hub answers ${response.status} for ${path}; nothing was committed, run the command again`,
    );
}

/** JSON to the hub, with the token where the address is the hub's own. @throws HubError for a refusal */
async function post(
  url: string,
  body: unknown,
  options: PushOptions,
  { type = 'application/json', accepted = [] }: { type?: string; accepted?: readonly number[] } = {},
): Promise<unknown> {
  const { settings, repo } = options;
  const own = new URL(url).origin === new URL(settings.endpoint).origin;
  const headers = {
    'content-type': type,
    ...(type.includes('git-lfs') ? { accept: type } : {}),
    ...(own ? { authorization: `Bearer ${settings.token}` } : {}),
  };
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await send(url, { method: 'POST', headers, body: text }, options, ANSWER_MS);
  const answer = await response.text();
  if (accepted.includes(response.status)) return undefined;
  if ([401, 403].includes(response.status))
    throw refusedByHub(
      `${settings.endpoint} does not let this token write to ${repo}; use one with the right to write, of an account that owns it`,
    );
  if (!response.ok)
    throw hubFailed(
      `${settings.endpoint} answers ${response.status} ${reasonIn(answer)} to the upload of ${repo}; nothing was committed`,
    );
  try {
    return JSON.parse(answer || '{}');
  } catch (error) {
    throw nonsense(options, 'gives an answer that is not JSON', error);
  }
}

async function send(
  url: string,
  request: RequestInit,
  { signal }: PushOptions,
  milliseconds: number,
): Promise<Response> {
  const timeout = AbortSignal.timeout(milliseconds);
  const headers = { 'user-agent': 'steptrain', ...(request.headers as Record<string, string>) };
  try {
    return await fetch(url, {
      ...request,
      headers,
      redirect: 'error',
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (error) {
    signal?.throwIfAborted();
    throw unreachable(new URL(url), error);
  }
}

/** The hub's reason for a refusal, as one line. */
function reasonIn(answer: string): string {
  // It may be a page for people.
  const error = attempt(() => (JSON.parse(answer) as { error?: unknown }).error);
  return typeof error === 'string' ? `(${error.split('\n', 1)[0]?.slice(0, 200)})` : '';
}

function nonsense({ settings, repo }: PushOptions, finding: string, cause?: unknown): HubError {
  return hubFailed(
    `${settings.endpoint} ${finding} in the upload of ${repo}; nothing was committed, check HF_ENDPOINT`,
    { cause },
  );
}

function base64(content: Uint8Array): string {
  return Buffer.from(content).toString('base64');
}
