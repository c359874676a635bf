// The teacher behind an endpoint: strict answers, tries, failures.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readCorrection, remoteTeacher } from '../../src/corrections/remote-teacher.js';

let server: Server;
let url: string;
/** What the server answers, by the number of the request: a content, or a status. */
let answers: (string | number)[] = [];
let requests: { messages: { content: string }[]; model: string; temperature: number }[] = [];
beforeAll(async () => {
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      requests.push(JSON.parse(body));
      const answer = answers[Math.min(requests.length, answers.length) - 1] ?? 500;
      if (typeof answer === 'number') {
        response.writeHead(answer).end('{"error":{"message":"no"}}');
        return;
      }
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ choices: [{ message: { content: answer } }], usage: {} }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => new Promise((resolve) => server.close(resolve)));

const STEP = {
  problem: '2+3+4?',
  answer: '9',
  before: ['2+3=5'],
  wrong: '5+4=8',
  right: '5+4=9',
  isLast: false,
};
const GOOD = '{"reflection": "the sum is off", "improvement": "5+4=9"}';
const ask = async (scripted: (string | number)[], steps = [STEP]) => {
  answers = scripted;
  requests = [];
  const teacher = remoteTeacher({ url, model: 'big', concurrency: 1, backoffSeconds: 0.001, attempts: 2 });
  try {
    return await teacher.correct(steps);
  } finally {
    teacher.close();
  }
};

describe('a teacher behind an endpoint', () => {
  it('is shown problem, right steps so far, flawed step and right step', async () => {
    expect(await ask([GOOD])).toEqual([{ reflection: 'the sum is off', improvement: '5+4=9' }]);
    expect(requests).toHaveLength(1);
    expect(requests[0]).toMatchObject({ model: 'big', temperature: 0 });
    for (const part of ['2+3+4?', '1. 2+3=5', '5+4=8', '5+4=9'])
      expect(requests[0]!.messages[0]!.content).toContain(part);
  });

  it('is asked again until its answer can be read, and given up then', async () => {
    expect(await ask(['Sure!', GOOD])).toEqual([{ reflection: 'the sum is off', improvement: '5+4=9' }]);
    expect(await ask(['Sure!'])).toEqual(['unreadable']);
    expect(requests).toHaveLength(3);
  });

  it('is tried again where the server fails, and not where it refuses', async () => {
    expect(await ask([503, GOOD])).toEqual([{ reflection: 'the sum is off', improvement: '5+4=9' }]);
    await expect(ask([503])).rejects.toThrow(/failed 2 times; the last time: .* answers 503/);
    await expect(ask([401])).rejects.toThrow(/answers 401: no/);
  });
});

it.each([
  ['```json\n{"reflection": "r", "improvement": "i"}\n```', { reflection: 'r', improvement: 'i' }],
  ['{"reflection": "r"}', undefined],
  ['{"reflection": "r", "improvement": "i", "more": 1}', undefined],
  ['{"reflection": 1, "improvement": "i"}', undefined],
  ['[]', undefined],
  ['null', undefined],
  ['{"reflection": "r", "improvement": "i"', undefined],
  ['{"reflection": "r", "improvement": "i", "improvement": "j"}', undefined],
])('reads %j', (text, expected) => {
  expect(readCorrection(text)).toEqual(expected);
});
