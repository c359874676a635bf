// Load on `steptrain serve` from OpenAI's client: node research/scripts/serve-load.mjs [requests] [streams]. Starts a server of the embedded model
// in a process of its own, keeps so many streams open at once, cancels one in 16 in the middle, and prints whether any was dropped, how long
// tokens took, and the server's memory as it went.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import OpenAI from 'openai';

const [requests = 4000, streams = 64] = process.argv.slice(2).map(Number);
const command = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const server = spawn(
  process.execPath,
  [command, 'serve', '--port', '0', '--device', 'cpu', '--cache-gb', '0.02'],
  {
    stdio: ['ignore', 'pipe', 'inherit'],
  },
);
const [line] = await once(server.stdout, 'data');
const baseURL = /http:\S+\/v1/.exec(String(line))[0];
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });

const firstTokens = [];
const count = { whole: 0, cancelled: 0, tokens: 0, dropped: [] };

/** One stream, read to its end or, one in 16, cancelled after two events. */
async function ask(i) {
  const began = performance.now();
  let events = 0;
  let reason;
  const stream = await client.completions.create({
    model: 'embedded',
    prompt: `${i % 100};+${i % 7};-3\n${i % 100}+${i % 7}=`,
    seed: i,
    max_tokens: 24,
    stream: true,
    stream_options: { include_usage: true },
    ignore_eos: true,
  });
  for await (const { choices, usage } of stream) {
    if (events++ === 0) firstTokens.push(performance.now() - began);
    reason = choices[0]?.finish_reason ?? reason;
    count.tokens += usage?.completion_tokens ?? 0;
    if (i % 16 === 15 && events === 2) {
      count.cancelled++;
      stream.controller.abort();
      return;
    }
  }
  if (reason !== 'length') throw new Error(`request ${i} ended with ${reason}`);
  count.whole++;
}

async function metric(name) {
  const text = await (await fetch(baseURL.replace(/\/v1$/, '/metrics'))).text();
  return Number(
    text
      .split('\n')
      .find((each) => each.startsWith(`${name} `))
      ?.split(' ')
      .at(-1),
  );
}

const began = performance.now();
let next = 0;
const every = Math.max(1, Math.floor(requests / 8));
async function work() {
  while (next < requests) {
    const i = next++;
    await ask(i).catch((error) => count.dropped.push(error.message));
    if ((i + 1) % every === 0)
      console.log(
        `${i + 1} requests: server ${((await metric('steptrain_resident_bytes')) / 2 ** 20).toFixed(0)} MiB`,
      );
  }
}
await Promise.all(Array.from({ length: streams }, work));
const seconds = (performance.now() - began) / 1000;
firstTokens.sort((a, b) => a - b);
const quantile = (q) =>
  firstTokens[Math.min(firstTokens.length - 1, Math.floor(q * firstTokens.length))].toFixed(0);
const left = {
  running: await metric('steptrain_rows{state="running"}'),
  used: await metric('steptrain_cache_pages{state="used"}'),
};
console.log(
  `${count.whole} whole, ${count.cancelled} cancelled, ${count.dropped.length} dropped in ${seconds.toFixed(1)} s with ${streams} streams: ` +
    `${(requests / seconds).toFixed(0)} requests/s, ${(count.tokens / seconds).toFixed(0)} tokens/s; ` +
    `first event after ${quantile(0.5)} ms (median), ${quantile(0.99)} ms (99 %); left behind: ${left.running} samples, ${left.used} pages`,
);
for (const message of count.dropped.slice(0, 5)) console.log(`dropped: ${message}`);
server.kill('SIGTERM');
await once(server, 'exit');
process.exitCode = count.dropped.length > 0 || left.running > 0 || left.used > 0 ? 1 : 0;
