// Adapters by name: loaded, used beside each other, replaced and unloaded while requests run; and how a server ends.
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadAdapter } from '../../src/models/adapter.js';
import { untrainedAdapter } from '../models/changed-model.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { metric, post, type TestServer, testServer, until } from './test-server.js';

const adapter = join(goldenDirectory('llama3'), 'adapter');
const prompt = [111, 110, 101];
const ask = ({ url }: TestServer, model: string, more: object = {}) =>
  post(`${url}/v1/completions`, {
    model,
    prompt,
    seed: 2,
    max_tokens: 6,
    return_token_ids: true,
    logprobs: 0,
    ...more,
  });

const load = ({ url }: TestServer, name: string, path: string, more: object = {}) =>
  post(`${url}/v1/load_lora_adapter`, { lora_name: name, lora_path: path, ...more });
const unload = ({ url }: TestServer, name: string) =>
  post(`${url}/v1/unload_lora_adapter`, { lora_name: name });

async function expected({ device, model }: TestServer, directory: string | undefined) {
  const loaded = directory === undefined ? undefined : loadAdapter(device, model.decoder.config, directory);
  const role = loaded ? { adapter: loaded } : {};
  const [[sample] = []] = await model.generate([prompt], { seed: 2, maxNewTokens: 6, role });
  loaded?.dispose();
  return [sample?.tokens, [...(sample?.logprobs ?? [])]];
}

const given = ({ json }: Awaited<ReturnType<typeof ask>>) => {
  const [choice] = json.choices;
  return [choice?.token_ids, (choice?.logprobs as { token_logprobs: number[] } | undefined)?.token_logprobs];
};

describe('adapters', () => {
  it('that change nothing are told of as they are loaded', async () => {
    const warnings: string[] = [];
    const adapters = { trained: adapter, untrained: await untrainedAdapter('llama3') };
    await testServer({ adapters, otherBase: true, onWarning: (warning) => warnings.push(warning) });
    expect(warnings).toEqual([
      expect.stringMatching(new RegExp(`^${adapters.untrained} changes nothing: every lora_B`)),
    ]);
  });

  it('answer under their names, beside each other and the base', async () => {
    const server = await testServer({ adapters: { first: adapter }, adapterRoot: goldenDirectory('llama3') });
    expect(await load(server, 'second', adapter)).toMatchObject({ status: 200 });
    const [base, first, second] = await Promise.all(
      ['pupil', 'first', 'second'].map((name) => ask(server, name)),
    );
    expect(given(first as never)).toEqual(await expected(server, adapter));
    expect(given(second as never)).toEqual(given(first as never));
    expect(given(base as never)).toEqual(await expected(server, undefined));
    expect(given(base as never)).not.toEqual(given(first as never));
  });

  it('stay with the requests that use them, also where those are all that is left of them', async () => {
    const server = await testServer({ adapters: { pet: adapter } });
    // 32 samples, so that they run long enough to be seen running.
    const long = ask(server, 'pet', { max_tokens: 300, ignore_eos: true, n: 32 });
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) > 0);
    expect((await unload(server, 'pet')).status).toBe(200);
    expect((await ask(server, 'pet')).status).toBe(404);
    const { json } = await long;
    expect(json.usage.completion_tokens).toBe(32 * 300);
    const [[sample] = []] = await (async () => {
      const again = loadAdapter(server.device, server.model.decoder.config, adapter);
      const samples = await server.model.generate([prompt], {
        seed: 2,
        maxNewTokens: 300,
        ignoreEos: true,
        role: { adapter: again },
      });
      again.dispose();
      return samples;
    })();
    expect(json.choices[0]?.token_ids).toEqual(sample?.tokens);
  });

  it('leave no memory behind', async () => {
    const server = await testServer({ adapterRoot: goldenDirectory('llama3') });
    await ask(server, 'pupil');
    const liveBytes = async () => {
      await server.device.synchronize();
      return server.device.stats().liveBytes;
    };
    const afterOneMore = async (name: string) => {
      await load(server, name, adapter);
      await ask(server, name);
      const loaded = await liveBytes();
      await unload(server, name);
      expect(loaded).toBeGreaterThan(await liveBytes());
      return liveBytes();
    };
    const first = await afterOneMore('a');
    for (const name of ['b', 'c']) expect(await afterOneMore(name)).toBe(first);
  });

  it('are replaced where the request says so', async () => {
    const server = await testServer({ adapters: { pet: adapter }, adapterRoot: goldenDirectory('llama3') });
    expect((await load(server, 'pet', adapter)).json.error.message).toMatch(
      /^lora_name: pet has already been loaded/,
    );
    expect((await load(server, 'pet', adapter, { load_inplace: true })).status).toBe(200);
    expect(given(await ask(server, 'pet'))).toEqual(await expected(server, adapter));
  });

  it('write text: a reward network is refused', async () => {
    const server = await testServer({ adapterRoot: goldenDirectory('heads') });
    expect((await load(server, 'judge', 'sequence-adapter')).json.error.message).toMatch(
      /^lora_path: .*sequence-adapter is a classifier such as a reward network \(task_type SEQ_CLS\): it scores text and writes none/,
    );
    expect((await ask(server, 'judge')).status).toBe(404);
  });

  it('belong to the base that is served, unless the server takes those of others', async () => {
    const root = temporaryDirectory();
    const [own, other] = [join(root, 'own'), join(root, 'other')];
    cpSync(goldenDirectory('llama3'), other, { recursive: true });
    writeFileSync(join(other, 'config.json'), `${readFileSync(join(other, 'config.json'), 'utf8')} `);
    const config = JSON.parse(readFileSync(join(adapter, 'adapter_config.json'), 'utf8')) as object;
    const name = (directory: string, base: string) => {
      cpSync(adapter, directory, { recursive: true });
      const named = { ...config, base_model_name_or_path: base };
      writeFileSync(join(directory, 'adapter_config.json'), JSON.stringify(named));
    };
    name(own, other);
    name(join(root, 'far'), '/nowhere/far-model');
    const warnings: string[] = [];
    const server = await testServer({ adapterRoot: root, onWarning: (warning) => warnings.push(warning) });
    const { status, json } = await load(server, 'a', 'own');
    expect([status, json.error.message]).toEqual([
      400,
      expect.stringMatching(
        /^lora_path: .*own was trained on .*other, and .*chat is another model; load it where that one is served, or start this server with --other-base$/,
      ),
    ]);
    expect((await ask(server, 'a')).status).toBe(404);
    expect((await load(server, 'far', 'far')).status).toBe(200);
    expect(warnings).toEqual([
      expect.stringMatching(/far was trained on \/nowhere\/far-model, which is not here/),
    ]);
    const free = await testServer({ adapterRoot: root, otherBase: true });
    expect((await load(free, 'a', 'own')).status).toBe(200);
  });

  it('come from inside their folder alone', async () => {
    const root = temporaryDirectory();
    const outside = temporaryDirectory();
    cpSync(adapter, join(outside, 'adapter'), { recursive: true });
    symlinkSync(join(outside, 'adapter'), join(root, 'link'));
    const server = await testServer({ adapterRoot: root });
    const says = async (path: string) => (await load(server, 'a', path)).json.error.message;
    const inside = 'lora_path: the server loads adapters from inside its --adapter-root alone';
    expect(await says(join(outside, 'adapter'))).toBe(inside);
    expect(await says('../adapter')).toBe(inside);
    expect(await says(`${root}-other/adapter`)).toBe(inside);
    expect(await says('link')).toBe(inside);
    expect(await says('/etc/passwd')).toBe(inside);
    expect(await says('nothing')).toBe(
      "lora_path: nothing, counted from the server's --adapter-root: no such file or directory",
    );
    expect(await says('.')).toMatch(/^lora_path: .* is no adapter: it has no adapter_config\.json$/);
    expect((await load(server, '../x', 'link')).json.error.message).toBe(inside);
    cpSync(adapter, join(root, 'own'), { recursive: true });
    expect((await load(server, '../x', 'own')).json.error.message).toMatch(
      /^lora_name: expected up to 128 letters/,
    );
    expect((await load(server, 'a', 'own')).status).toBe(200);
  });
});

describe('the end of a server', () => {
  it('lets what runs end, and refuses what comes after', async () => {
    const server = await testServer();
    const long = ask(server, 'pupil', { max_tokens: 400, ignore_eos: true, n: 32 });
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) > 0);
    const closed = server.close(60);
    await expect(ask(server, 'pupil')).rejects.toThrow();
    expect((await long).json.usage.completion_tokens).toBe(32 * 400);
    await closed;
  });

  it('gives what there is when the time is over', async () => {
    const server = await testServer();
    const long = ask(server, 'pupil', { max_tokens: 400, ignore_eos: true, n: 32 });
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) > 0);
    await server.close(0);
    const { status, json } = await long;
    expect([status, json.choices[0]?.finish_reason]).toEqual([200, 'abort']);
    expect(json.usage.completion_tokens).toBeLessThan(32 * 400);
  });

  it('does not wait for bodies that are not there yet', async () => {
    const server = await testServer();
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.write(
      'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{',
    );
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) === 0);
    await server.close(0);
    socket.destroy();
    expect(server.errors).toEqual([]);
  });

  it('does not wait for a client that does not read what it had asked for', async () => {
    // With the patience of a day, which closing must not have.
    const server = await testServer({ limits: { stallSeconds: 86_400 } });
    const { hostname, port } = new URL(server.url);
    const body = JSON.stringify({
      prompt: 'a',
      max_tokens: 450,
      n: 64,
      stream: true,
      ignore_eos: true,
      logprobs: 20,
    });
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.pause();
    const type = 'Content-Type: application/json';
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${type}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await until(async () => (await metric(server.url, 'steptrain_generated_tokens_total')) > 2000);
    await server.close(0);
    expect(server.errors).toEqual([]);
    socket.destroy();
  });

  it('comes with a failed device: every request hears of it, and whoever started the server', async () => {
    const server = await testServer();
    server.model.dispose();
    const answers = await Promise.all([ask(server, 'pupil'), ask(server, 'pupil')]);
    // The second may come after all is known.
    expect(answers.every(({ status }) => status === 500 || status === 503)).toBe(true);
    expect(answers.find(({ status }) => status === 500)?.json.error).toMatchObject({
      message: 'the server failed; see its log',
      type: 'server_error',
    });
    expect(await server.failure).toBeInstanceOf(Error);
    expect((await ask(server, 'pupil')).status).toBe(503);
    expect((await fetch(`${server.url}/health`)).status).toBe(503);
  });
});
