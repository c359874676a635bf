// The servers that clients are sent to, behind a proxy that keeps what was asked and answered.
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

const COMMAND = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

/** How long a process that starts may print nothing: vLLM compiles and profiles, beside other work for minutes. */
const QUIET = 600;

/** Resolves with what `ready` gives, of all that the process has printed or of nothing; ends the process at exit. */
async function started(command, args, env, ready) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const end = () => child.kill('SIGKILL');
  process.once('exit', end);
  let output = '';
  let heard = Date.now();
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      heard = Date.now();
      output += data;
    });
  let ended;
  child.on('error', (error) => {
    ended = error.message;
  });
  child.on('close', (code) => {
    ended ??= `status ${code}`;
  });
  for (;;) {
    const found = await ready(output);
    if (found !== undefined) {
      const stop = async () => {
        process.off('exit', end);
        child.kill('SIGTERM');
        for (let i = 0; i < 100 && ended === undefined; i++)
          await new Promise((next) => setTimeout(next, 100));
        child.kill('SIGKILL');
      };
      return { url: found, stop };
    }
    if (ended !== undefined || Date.now() - heard > 1000 * QUIET) {
      child.kill('SIGKILL');
      throw new Error(
        `${command} did not start (${ended ?? `${QUIET} s without a line`}):\n${output.slice(-4000)}`,
      );
    }
    await new Promise((next) => setTimeout(next, 200));
  }
}

export async function serveSteptrain(model, ...more) {
  const args = [
    COMMAND,
    'serve',
    '--device',
    'cpu',
    '--port',
    '0',
    '--model',
    model,
    '--cache-gb',
    '1',
    ...more,
  ];
  const printed = (output) => /served on (http:\S+)\/v1/.exec(output)?.[1];
  const server = await started(process.execPath, args, {}, printed);
  return recorded(server);
}

export async function serveVllm(python, model, name) {
  const port = 20_000 + Math.floor(Math.random() * 20_000);
  const url = `http://127.0.0.1:${port}`;
  const args = ['-m', 'vllm.entrypoints.openai.api_server', '--model', model, '--served-model-name', name];
  args.push('--host', '127.0.0.1', '--port', String(port), '--dtype', 'float32', '--max-model-len', '1024');
  args.push('--max-num-seqs', '8', '--enforce-eager', '--enable-lora', '--max-lora-rank', '16');
  const env = {
    HF_HUB_OFFLINE: '1',
    VLLM_NO_USAGE_STATS: '1',
    VLLM_CPU_KVCACHE_SPACE: '1',
    VLLM_CPU_OMP_THREADS_BIND: 'nobind',
    OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? '1',
    VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True',
    VLLM_SERVER_DEV_MODE: '1',
  };
  const answers = async () => {
    const response = await fetch(`${url}/health`).catch(() => undefined);
    return response?.ok ? url : undefined;
  };
  return recorded(await started(python, args, env, answers));
}

/** Passes everything on, and keeps it in `exchanges`. */
async function recorded({ url, stop }) {
  const exchanges = [];
  const proxy = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const { host: _, connection: _connection, 'content-length': _length, ...headers } = request.headers;
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    try {
      const answer = await fetch(url + request.url, {
        method: request.method,
        headers,
        ...(body.length > 0 ? { body } : {}),
        signal: gone.signal,
      });
      response.writeHead(answer.status, {
        'content-type': answer.headers.get('content-type') ?? 'text/plain',
      });
      let text = '';
      const decoder = new TextDecoder();
      for await (const chunk of answer.body ?? []) {
        text += decoder.decode(chunk, { stream: true });
        response.write(chunk);
      }
      response.end();
      exchanges.push({
        method: request.method,
        path: request.url,
        ...(body.length > 0 ? { body: JSON.parse(body.toString()) } : {}),
        status: answer.status,
        answer: text,
      });
    } catch {
      response.destroy();
    }
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${proxy.address().port}`,
    exchanges,
    kill: stop,
    async stop() {
      proxy.close();
      proxy.closeAllConnections();
      await stop();
    },
  };
}
