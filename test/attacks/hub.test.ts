// A hostile hub: whatever it answers, the client ends with one sentence, writes nothing outside its cache, and keeps what it had.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { HubError } from '../../src/hub/error.js';
import { parseHubId } from '../../src/hub/hub-id.js';
import { fetchSnapshot } from '../../src/hub/snapshot.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const COMMIT = 'a'.repeat(40);
const BYTES = Buffer.from('{"x": 1}\n');
const hashOf = (bytes: Buffer) =>
  createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
const FILE = { rfilename: 'a.jsonl', size: BYTES.length, blobId: hashOf(BYTES) };
const listing = (...siblings: unknown[]) => JSON.stringify({ sha: COMMIT, siblings });

async function hub(handle: RequestListener): Promise<string> {
  const server = createServer((request, response) => {
    response.on('error', () => {});
    handle(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A hub with one list of files, and its own way to send them. */
const withFiles = (list: string, send: RequestListener) =>
  hub((request, response) =>
    request.url?.startsWith('/api/') ? response.end(list) : send(request, response),
  );

/** What the client says, and the folder in which its cache lies. */
async function attacked(endpoint: string, paths: readonly string[] = ['a.jsonl']) {
  const root = temporaryDirectory();
  const cache = join(root, 'cache/hub');
  const before = readdirSync(dirname(root)).filter((name) => name.startsWith('escaped'));
  const error = await fetchSnapshot('dataset', parseHubId('a/b')!, () => paths, {
    settings: { endpoint, cache, offline: false, token: 'secret' },
    stream: { write: () => {} },
    patience: 1,
  }).then(
    () => new Error('it was accepted'),
    (reason: unknown) => reason as Error,
  );
  // Nothing beside the cache.
  expect(readdirSync(root).filter((name) => name !== 'cache')).toEqual([]);
  expect(readdirSync(dirname(root)).filter((name) => name.startsWith('escaped'))).toEqual(before);
  const blobs = join(cache, 'datasets--a--b/blobs');
  return { error, blobs: existsSync(blobs) ? readdirSync(blobs) : [] };
}

async function refused(endpoint: string, sentence: RegExp, paths?: readonly string[]) {
  const { error, blobs } = await attacked(endpoint, paths);
  expect(error, error.stack).toBeInstanceOf(HubError);
  expect(error.message).toMatch(sentence);
  expect(error.message.length).toBeLessThan(600);
  expect(error.message).not.toContain('secret');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what a terminal would obey
  expect(error.message).not.toMatch(/[\x00-\x1f]/);
  expect(blobs.filter((name) => !name.endsWith('.incomplete'))).toEqual([]);
}

describe('a list of files', () => {
  it.each([
    ['../escaped'],
    ['..\\escaped'],
    ['/etc/escaped'],
    ['a/../../escaped'],
    ['a//b'],
    ['./a'],
    [''],
    ['a\0.jsonl'],
    ['\u001b[2Ja.jsonl'],
    ['a\n.jsonl'],
    ['x'.repeat(300)],
    [['a']],
    [null],
    [{ name: '../escaped' }],
  ])('with the name %j is refused', async (rfilename) => {
    const endpoint = await withFiles(listing({ ...FILE, rfilename }), (_, response) => response.end(BYTES));
    await refused(endpoint, /lists a file with(out)? /, [String(rfilename)]);
  });

  it.each([
    [{ size: -1 }],
    [{ size: 1.5 }],
    [{ size: 1e300 }],
    [{ size: '9' }],
    [{ size: null }],
    [{ blobId: '../../escaped' }],
    [{ blobId: 'A'.repeat(40) }],
    [{ blobId: undefined }],
    [{ lfs: { sha256: '../escaped' } }],
    [{ lfs: { sha256: ['a'.repeat(64)] } }],
  ])('with a file of %j is refused', async (changed) => {
    const endpoint = await withFiles(listing({ ...FILE, ...changed }), (_, response) => response.end(BYTES));
    await refused(endpoint, /lists a file without its name, size and checksum; check HF_ENDPOINT/);
  });

  it.each([
    ['no JSON', '<html>', /something that is not JSON/],
    ['JSON of another kind', '[]', /has no 'sha' and 'siblings'/],
    ['null', 'null', /has no 'sha' and 'siblings'/],
    ['a commit that is a path', JSON.stringify({ sha: '../../escaped', siblings: [] }), /has no 'sha'/],
    ['very deep', '['.repeat(100_000), /is not JSON/],
    ['nothing', '', /is not JSON/],
  ])('that is %s is refused', async (_, text, sentence) => {
    await refused(await hub((__, response) => response.end(text)), sentence);
  });

  it('without end is left at some length', async () => {
    const endpoint = await hub((_, response) => pour(response, Buffer.alloc(1 << 20, ' ')));
    await refused(endpoint, /longer than any list of files/);
  });

  it('in which a file is also a folder is an error about the disk', async () => {
    const inside = { ...FILE, rfilename: 'a.jsonl/b.jsonl' };
    const endpoint = await withFiles(listing(FILE, inside), (_, response) => response.end(BYTES));
    const { error } = await attacked(endpoint, ['a.jsonl', 'a.jsonl/b.jsonl']);
    expect(error).toBeInstanceOf(HubError);
    expect(error.message).toMatch(/^cannot write .*a\.jsonl/);
  });
});

describe('redirects', () => {
  const to = (location: string) => hub((_, response) => response.writeHead(302, { location }).end());

  it.each([
    ['to itself', '/api/datasets/a/b/revision/main', /redirects data set a\/b without end/],
    ['to a file', 'file:///etc/passwd', /to "file:\/\/\/etc\/passwd", which is no web address/],
    ['to data', 'data:application/json,{}', /which is no web address/],
    ['to no address', 'http://', /to "http:\/\/", which is no web address/],
    ['to a port that does not answer', 'http://127.0.0.1:1/', /cannot reach http:\/\/127\.0\.0\.1:1/],
  ])('%s end', async (_, location, sentence) => {
    await refused(await to(location), sentence);
  });

  it('to another host do not bring the token along', async () => {
    const seen: (string | undefined)[] = [];
    const other = await hub(({ headers }, response) => {
      seen.push(headers.authorization);
      response.end(BYTES);
    });
    const endpoint = await withFiles(listing(FILE), (_, response) =>
      response.writeHead(307, { location: `${other}/x` }).end(),
    );
    expect((await attacked(endpoint)).error.message).toBe('it was accepted');
    expect(seen).toEqual([undefined]);
  });
});

describe('a file', () => {
  const sent = (send: (request: IncomingMessage, response: ServerResponse) => void) =>
    withFiles(listing(FILE), send);

  it.each<[string, (request: IncomingMessage, response: ServerResponse) => void, RegExp]>([
    ['without end', (_, response) => pour(response, BYTES), /is longer than the 9 bytes/],
    [
      'that is longer than announced',
      (_, response) => response.end('x'.repeat(10)),
      /is longer than the 9 bytes/,
    ],
    ['of other content', (_, response) => response.end('x'.repeat(9)), /does not match its checksum/],
    ['that always ends early', (_, response) => response.writeHead(200).end(), /stopped at 0 B of 9 B/],
    ['that is refused in every range', parts, /sends a\.jsonl of the data set a\/b in parts and refuses/],
    [
      'whose range is another',
      (request, response) =>
        request.headers.range
          ? response.writeHead(206, { 'content-range': 'bytes 0-8/9' }).end(BYTES)
          : cut(response),
      /with the range "bytes 0-8\/9"; expected bytes 4/,
    ],
    [
      'of a broken encoding',
      (_, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end('no gzip'),
      /cannot reach|stopped at/,
    ],
    ['that is a server error', (_, response) => response.writeHead(500).end(), /answers 500/],
  ])('%s is refused', async (_, send, sentence) => {
    await refused(await sent(send), sentence);
  });

  it('that was refused once is downloaded by the next attempt', async () => {
    let first = true;
    const endpoint = await sent((_, response) => {
      response.end(first ? 'x'.repeat(9) : BYTES);
      first = false;
    });
    const cache = join(temporaryDirectory(), 'hub');
    const options = {
      settings: { endpoint, cache, offline: false, token: undefined },
      stream: { write: () => {} },
    };
    const get = () => fetchSnapshot('dataset', parseHubId('a/b')!, () => ['a.jsonl'], options);
    await expect(get()).rejects.toThrow(/checksum/);
    const { directory } = await get();
    expect(readFileSync(join(directory, 'a.jsonl'))).toEqual(BYTES);
  });
});

/** Four bytes, then the connection is gone. */
function cut(response: ServerResponse): void {
  response.writeHead(200, { 'content-length': BYTES.length });
  // The client has read them by then.
  response.write(BYTES.subarray(0, 4), () => setTimeout(() => response.destroy(), 50));
}

function parts(request: IncomingMessage, response: ServerResponse): void {
  if (request.headers.range) response.writeHead(416).end();
  else cut(response);
}

/** Sends until nobody listens. */
function pour(response: ServerResponse, bytes: Buffer): void {
  const more = () => {
    while (!response.destroyed && response.write(bytes));
  };
  response.on('drain', more);
  more();
}
