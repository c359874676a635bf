import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { HubError } from '../../src/hub/error.js';
import { parseHubId } from '../../src/hub/hub-id.js';
import type { HubSettings } from '../../src/hub/settings.js';
import { fetchSnapshot } from '../../src/hub/snapshot.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { startHub, type TestHub, type TestRepository } from './test-hub.js';

const large = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7919) % 251));
const repository: TestRepository = {
  kind: 'dataset',
  name: 'a/b',
  files: { 'data/large.jsonl': large, 'small.jsonl': Buffer.from('{}\n'), 'other.jsonl': Buffer.from('[]') },
  revisions: ['main', 'refs/pr/1'],
};
const largeHash = createHash('sha256').update(large).digest('hex');

let cache: string;
let lines: string[];
beforeEach(() => {
  cache = join(temporaryDirectory(), 'hub');
  lines = [];
});

const settingsOf = (hub: Pick<TestHub, 'endpoint'>, more: Partial<HubSettings> = {}): HubSettings => ({
  endpoint: hub.endpoint,
  cache,
  offline: false,
  token: undefined,
  ...more,
});

function fetch(
  hub: Pick<TestHub, 'endpoint'>,
  text = 'a/b',
  more: Partial<HubSettings> = {},
  paths = ['data/large.jsonl'],
) {
  return fetchSnapshot('dataset', parseHubId(text)!, () => paths, {
    settings: settingsOf(hub, more),
    stream: { write: (line: string) => lines.push(line) },
    patience: 1,
  });
}

it('ends as a signal says, also while it waits to try again, and removes the part that has come', async () => {
  const hub = await startHub([repository]);
  hub.faults.set('data/large.jsonl', [{ cutAfter: 100_000 }]);
  const [reason, stop] = [new Error('enough'), new AbortController()];
  const attempt = fetchSnapshot('dataset', parseHubId('a/b')!, () => ['data/large.jsonl'], {
    settings: settingsOf(hub),
    stream: { write: () => setTimeout(() => stop.abort(reason), 300) },
    patience: 60_000,
    signal: stop.signal,
  });
  await expect(attempt).rejects.toBe(reason);
  expect(
    readdirSync(cache, { recursive: true })
      .map(String)
      .filter((path) => path.includes('incomplete')),
  ).toEqual([]);
});

const failure = async (attempt: Promise<unknown>): Promise<HubError> => {
  const error = await attempt.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(HubError);
  return error as HubError;
};
const blobs = () => readdirSync(join(cache, 'datasets--a--b/blobs')).sort();

describe('a snapshot', () => {
  it('has the cache layout of huggingface_hub, and only the selected files', async () => {
    const hub = await startHub([repository]);
    const commit = hub.commit(repository);
    const { directory, paths, all } = await fetch(hub);
    const folder = join(cache, 'datasets--a--b');
    expect(directory).toBe(join(folder, 'snapshots', commit));
    expect(paths).toEqual(['data/large.jsonl']);
    expect(all).toEqual(Object.keys(repository.files));
    expect(readFileSync(join(folder, 'refs/main'), 'utf8')).toBe(commit);
    expect(readlinkSync(join(directory, 'data/large.jsonl'))).toBe(`../../../blobs/${largeHash}`);
    expect(readFileSync(join(directory, 'data/large.jsonl')).equals(large)).toBe(true);
    expect(blobs()).toEqual([largeHash]);
    expect(existsSync(join(directory, 'small.jsonl'))).toBe(false);
    // The blob of a small file is named as git names it.
    await fetch(hub, 'a/b', {}, ['small.jsonl']);
    expect(blobs()).toContain('0967ef424bce6791893e9a57bb952f80fd536e93');
  });

  it('is downloaded once', async () => {
    const hub = await startHub([repository]);
    await fetch(hub);
    const before = hub.requests.length;
    await fetch(hub);
    expect(hub.requests.slice(before)).toEqual(['GET /api/datasets/a/b/revision/main?blobs=true']);
    await fetch(hub, `a/b@${hub.commit(repository)}`);
    expect(hub.requests).toHaveLength(before + 1);
  });

  it('shares blobs with another revision', async () => {
    const hub = await startHub([repository]);
    await fetch(hub);
    await fetch(hub, 'a/b@refs/pr/1');
    expect(hub.requests.filter((line) => line.includes('/resolve/'))).toHaveLength(1);
    expect(readFileSync(join(cache, 'datasets--a--b/refs/refs/pr/1'), 'utf8')).toBe(hub.commit(repository));
  });

  it('shows the progress of the download in bytes', async () => {
    const hub = await startHub([repository]);
    await fetch(hub);
    expect(lines[0]).toMatch(/ of 300 kB {2}a\/b data\/large\.jsonl/);
    expect(lines.at(-1)).toMatch(/300 kB of 300 kB .* [\d.]+ [kMG]?B\/s {2}\d+s in all\n/);
  });
});

describe('a download', () => {
  const cut = (after: number) => ({ cutAfter: after });

  it('resumes after a broken connection', async () => {
    const hub = await startHub([repository]);
    hub.faults.set('data/large.jsonl', [cut(120_000), cut(60_000)]);
    const { directory } = await fetch(hub);
    expect(readFileSync(join(directory, 'data/large.jsonl')).equals(large)).toBe(true);
    const ranges = hub.requests.flatMap((line) => /bytes=(\d+)-/.exec(line)?.[1] ?? []);
    // Bytes in transit may be lost when a connection breaks.
    expect(ranges).toHaveLength(2);
    expect(Number(ranges[0])).toBeGreaterThan(0);
    expect(Number(ranges[0])).toBeLessThanOrEqual(120_000);
    expect(Number(ranges[1])).toBeGreaterThanOrEqual(Number(ranges[0]));
  });

  it('resumes the download of an earlier process', async () => {
    const hub = await startHub([repository]);
    hub.faults.set('data/large.jsonl', [cut(100_000), ...Array<{ status: number }>(5).fill({ status: 503 })]);
    const error = await failure(fetch(hub));
    expect(error.kind).toBe('network');
    expect(error.message).toMatch(
      /^the download of data\/large\.jsonl of the data set a\/b stopped at [\d.]+ kB of 300 kB: .* answers 503 .*; the same command continues from there$/,
    );
    const { size } = statSync(join(cache, `datasets--a--b/blobs/${largeHash}.incomplete`));
    expect(size).toBeGreaterThan(0);
    expect(existsSync(join(cache, 'datasets--a--b/refs/main'))).toBe(false);
    await fetch(hub);
    expect(hub.requests.at(-1)?.endsWith(` bytes=${size}-`)).toBe(true);
    expect(blobs()).toEqual([largeHash]);
  });

  it('starts again if the server cannot resume, or if the partial file is damaged', async () => {
    const hub = await startHub([repository]);
    hub.faults.set('data/large.jsonl', [cut(50_000), { ignoreRange: true }]);
    await fetch(hub);
    expect(blobs()).toEqual([largeHash]);

    for (const left of [Buffer.alloc(70_000), Buffer.alloc(large.length), Buffer.alloc(400_000)]) {
      rmSync(cache, { recursive: true });
      mkdirSync(join(cache, 'datasets--a--b/blobs'), { recursive: true });
      writeFileSync(join(cache, `datasets--a--b/blobs/${largeHash}.incomplete`), left);
      const { directory } = await fetch(hub);
      expect(readFileSync(join(directory, 'data/large.jsonl')).equals(large)).toBe(true);
    }
  });

  it('is refused if the content is wrong, and leaves nothing', async () => {
    const hub = await startHub([repository]);
    const wrong = Buffer.from(large);
    wrong[1000]! ^= 1;
    for (const [path, content] of [
      ['data/large.jsonl', wrong],
      ['data/large.jsonl', Buffer.concat([large, large])],
      ['small.jsonl', Buffer.from('{x}')],
    ] as const) {
      hub.faults.set(path, [{ content }]);
      const error = await failure(fetch(hub, 'a/b', {}, [path]));
      expect(error.kind).toBe('content');
      expect(error.message).toMatch(/of the data set a\/b (does not match its checksum|is longer than)/);
      expect(blobs().filter((name) => !name.endsWith('.incomplete'))).toEqual([]);
      await fetch(hub, 'a/b', {}, [path]);
      rmSync(cache, { recursive: true });
    }
  });

  it('sends the token to the hub and to nobody else', async () => {
    const hub = await startHub([repository]);
    await fetch(hub, 'a/b', { token: 'hf_secret' });
    expect([...hub.tokens]).toEqual(['Bearer hf_secret']);
    expect(hub.leaked).toEqual([]);
  });

  it('waits for another process that downloads the same', async () => {
    const hub = await startHub([repository]);
    await Promise.all([fetch(hub), fetch(hub)]);
    expect(hub.requests.filter((line) => line.includes('/resolve/'))).toHaveLength(1);
    expect(lines.join('')).toMatch(/process \d+ on .* is downloading a\/b; waiting for it/);
    expect(readdirSync(join(cache, '.locks/datasets--a--b'))).toEqual([]);
  });

  it('does not start if it does not fit on the disk', async () => {
    const huge = Object.defineProperty(Buffer.from(large), 'length', { value: 2 ** 52 });
    const hub = await startHub([{ ...repository, files: { 'data/large.jsonl': huge } }]);
    const error = await failure(fetch(hub));
    expect(error.kind).toBe('disk');
    expect(error.message).toMatch(
      /^the data set a\/b needs 4500 TB, and .* are free on the disk of .*HF_HOME$/,
    );
  });

  it('reports a cache that cannot be written', async () => {
    const hub = await startHub([repository]);
    writeFileSync(join(cache, '..', 'file'), '');
    const error = await failure(fetch(hub, 'a/b', { cache: join(cache, '..', 'file') }));
    expect(error.kind).toBe('disk');
    expect(error.message).toMatch(/^cannot write .*: a part of the path is not a directory \(HF_HOME or/);
  });
});

describe('without the network', () => {
  it('the cache is used, whether offline mode is set or the hub is unreachable', async () => {
    const hub = await startHub([repository]);
    const { directory } = await fetch(hub);
    await hub.close();
    expect((await fetch(hub, 'a/b', { offline: true })).directory).toBe(directory);
    expect((await fetch(hub)).directory).toBe(directory);
    expect(lines.at(-1)).toMatch(
      /^cannot reach http:.* \(ECONNREFUSED\); using a\/b at [0-9a-f]{8} from the cache\n$/,
    );
  });

  it('an incomplete snapshot in the cache is an error', async () => {
    const hub = await startHub([repository]);
    const offline = { offline: true };
    expect((await failure(fetch(hub, 'a/b', offline))).message).toBe(
      `HF_HUB_OFFLINE is set and the data set a/b is not, or not whole, in ${cache}; unset it to download`,
    );
    expect(hub.requests).toEqual([]);
    const { directory } = await fetch(hub);
    expect((await failure(fetch(hub, 'a/b', offline, ['small.jsonl']))).kind).toBe('offline');
    expect((await failure(fetch(hub, 'a/b@v2', offline))).kind).toBe('offline');
    // A blob was deleted, and its link is left.
    rmSync(join(cache, 'datasets--a--b/blobs', largeHash));
    expect(lstatSync(join(directory, 'data/large.jsonl')).isSymbolicLink()).toBe(true);
    expect((await failure(fetch(hub, 'a/b', offline))).kind).toBe('offline');
    await fetch(hub);
    expect((await fetch(hub, 'a/b', offline)).directory).toBe(directory);
  });

  it('files that another program has cached are used, except sets with missing shards', async () => {
    const commit = '1'.repeat(40);
    const folder = join(cache, 'datasets--a--b');
    mkdirSync(join(folder, 'blobs'), { recursive: true });
    mkdirSync(join(folder, 'refs'));
    mkdirSync(join(folder, 'snapshots', commit), { recursive: true });
    writeFileSync(join(folder, 'refs/main'), commit);
    const add = (name: string) => {
      writeFileSync(join(folder, 'blobs', name), name);
      symlinkSync(`../../blobs/${name}`, join(folder, 'snapshots', commit, name));
    };
    add('train-00000-of-00002.jsonl');
    const wanted = ['train-00000-of-00002.jsonl'];
    expect((await failure(fetch({ endpoint: 'http://nobody' }, 'a/b', { offline: true }, wanted))).kind).toBe(
      'offline',
    );
    add('train-00001-of-00002.jsonl');
    expect((await fetch({ endpoint: 'http://nobody' }, 'a/b', { offline: true }, wanted)).all).toHaveLength(
      2,
    );
    expect(lines.join('')).toBe(
      'a/b: another program cached it, and whether it cached all files is not known here; using train-00000-of-00002.jsonl\n',
    );
  });

  it('a model that another program has cached without its template is used, and a line names that', async () => {
    const commit = '2'.repeat(40);
    const folder = join(cache, 'models--a--m');
    mkdirSync(join(folder, 'refs'), { recursive: true });
    mkdirSync(join(folder, 'snapshots', commit), { recursive: true });
    writeFileSync(join(folder, 'refs/main'), commit);
    const add = (name: string) => writeFileSync(join(folder, 'snapshots', commit, name), '{}');
    const read = async () => {
      lines.length = 0;
      await fetchSnapshot('model', parseHubId('a/m')!, () => ['config.json'], {
        settings: settingsOf({ endpoint: 'http://nobody' }, { offline: true }),
        stream: { write: (line: string) => lines.push(line) },
      });
      return lines.join('');
    };
    add('config.json');
    add('generation_config.json');
    expect(await read()).toBe(
      'a/m: another program cached it, and whether it cached all files is not known here; chat_template.jinja is not there\n',
    );
    add('chat_template.jinja');
    expect(await read()).toBe('');
  });

  it('the files of a commit that another program has cached are asked of the hub, which may have more', async () => {
    const hub = await startHub([repository]);
    const { commit } = await fetch(hub);
    rmSync(join(cache, 'datasets--a--b/.steptrain'), { recursive: true });
    hub.requests.length = 0;
    const pinned = `a/b@${commit}`;
    expect((await fetch(hub, pinned)).all).toHaveLength(3);
    expect(hub.requests).not.toEqual([]);
    hub.requests.length = 0;
    // Listed now.
    expect((await fetch(hub, pinned)).all).toHaveLength(3);
    expect(hub.requests).toEqual([]);
  });

  it('an unknown repository is an error that names the host', async () => {
    const hub = await startHub([]);
    await hub.close();
    const error = await failure(fetch(hub));
    expect(error.kind).toBe('network');
    expect(error.message).toBe(
      `cannot reach ${hub.endpoint} (ECONNREFUSED); check the network and HF_ENDPOINT, or give a local path`,
    );
  });
});

describe('a refusal', () => {
  it.each([
    [
      401,
      'GatedRepo',
      'refused',
      /^the data set a\/b is gated: accept its terms at .*\/datasets\/a\/b and set HF_TOKEN$/,
    ],
    [403, 'GatedRepo', 'refused', /is gated/],
    [403, '', 'refused', /does not let you read the data set a\/b; see .*, and set HF_TOKEN$/],
    [
      401,
      'RepoNotFound',
      'missing',
      /^there is no data set a\/b on .*, or it is private; check the name, or set HF_TOKEN$/,
    ],
    [404, 'RepoNotFound', 'missing', /^there is no data set a\/b/],
    [500, '', 'network', /answers 500 .* for the data set a\/b; try again later/],
  ] as const)('with status %i %s is %s', async (status, code, kind, message) => {
    const hub = await startHub([{ ...repository, refusal: { status, code } }]);
    const error = await failure(fetch(hub));
    expect(error.kind).toBe(kind);
    expect(error.message).toMatch(message);
  });

  it('names a revision that does not exist', async () => {
    const hub = await startHub([repository]);
    const error = await failure(fetch(hub, 'a/b@v9'));
    expect(error.message).toMatch(/^the data set a\/b@v9 has no revision v9 \(http.*\/datasets\/a\/b\)$/);
  });
});
