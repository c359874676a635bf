// Requests as real clients sent them (`npm run test:clients -- --record`), each answered as its client expects.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { testServer } from './test-server.js';

interface Recorded {
  readonly client: string;
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly status: number;
}

interface Choice {
  readonly text: string;
  readonly finish_reason: string;
  readonly logprobs: {
    readonly token_logprobs: readonly (number | null)[];
    readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[];
  } | null;
}

const folder = new URL('recorded/', import.meta.url);
const recorded = readdirSync(folder).flatMap(
  (file) => JSON.parse(readFileSync(new URL(file, folder), 'utf8')) as Recorded[],
);

it('are answered', async () => {
  const server = await testServer();
  expect(recorded.length).toBeGreaterThan(20);
  for (const { client, method, path, body, status } of recorded) {
    const response = await fetch(server.url + path, {
      method,
      ...(body ? { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } } : {}),
    });
    const text = await response.text();
    expect([client, body, response.status, status === 200 ? '' : text]).toEqual([
      client,
      body,
      status,
      status === 200 ? '' : expect.stringMatching(/^\{"error":\{"message":"\w/),
    ]);
    if (status !== 200 || !body) continue;
    if (body.stream) expect(text).toMatch(/\n\ndata: \[DONE\]\n\n$/);
    else {
      const { choices } = JSON.parse(text) as { choices: readonly Choice[] };
      expect(choices.length).toBe(promptsOf(body.prompt) * ((body.n as number | undefined) ?? 1));
      if (body.echo && body.logprobs) for (const choice of choices) expectAlternatives(choice);
    }
  }
  expect(server.errors).toEqual([]);
});

const promptsOf = (prompt: unknown) =>
  Array.isArray(prompt) && typeof prompt[0] !== 'number' ? prompt.length : 1;

/** As lm-eval reads them: after the first token the largest of an object is compared with the token's own. */
function expectAlternatives({ logprobs }: Choice): void {
  const { token_logprobs: own, top_logprobs: top } = logprobs as NonNullable<typeof logprobs>;
  expect([own[0], top[0]]).toEqual([null, null]);
  for (const [i, values] of top.slice(1).entries()) {
    const largest = Math.max(...Object.values(values as object));
    expect(own[i + 1]).toBeLessThanOrEqual(largest);
    expect(Object.values(values as object)).toContain(own[i + 1]);
  }
}
