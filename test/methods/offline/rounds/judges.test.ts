// The judges that a configuration names, for labels and for the evaluation.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { completeRunConfig } from '../../../../src/methods/config.js';
import {
  type RoundSettings,
  type RoundsConfig,
  unreadRoundKeys,
} from '../../../../src/methods/offline/rounds/config.js';
import { evaluationJudge, labelJudge } from '../../../../src/methods/offline/rounds/judges.js';
import { acceptedChanges } from '../../../../src/run/inputs.js';
import { verdictsOf } from '../../../../src/scoring/scorer.js';
import { loggingTo } from '../../../../src/terminal/log.js';
import { fileWith } from '../../../data/data-file.js';

const solution = {
  problem: 'What is 1+1+1?',
  text: '1+1=2\n2+1=4',
  of: { problem: 'What is 1+1+1?', answer: '3' },
  steps: ['1+1=2', '2+1=4'],
};

let folder: string;
let server: Server;
let asked: { model: string }[];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'judges-'));
  asked = [];
  server = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    asked.push(JSON.parse(Buffer.concat(parts).toString()));
    const choices = [{ message: { content: '{"1": "correct", "2": "incorrect"}' } }];
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices, usage: { prompt_tokens: 100, completion_tokens: 10 } }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true, force: true });
});

const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
const config = (sections: Record<string, object>) =>
  completeRunConfig({
    method: 'step_kto',
    model: { base: 'word-problems-misread' },
    data: { source: 'word_problems' },
    run: { output_dir: folder },
    ...sections,
  } as never) as unknown as RoundsConfig;
/** Nothing is loaded onto it. */
const noDevice = undefined as never;

it('a language model behind one server labels, and another behind another server evaluates', async () => {
  const both = config({
    judge: { kind: 'llm', url: url(), model: 'labeller' },
    eval_solving: { judge: 'llm', llm: { url: url(), model: 'critic' } },
  });
  for (const [open, model, file] of [
    [labelJudge, 'labeller', 'judge-cache.jsonl'],
    [evaluationJudge, 'critic', 'eval-judge-cache.jsonl'],
  ] as const) {
    const judge = open(both, noDevice);
    expect(await verdictsOf(judge!)([solution])).toEqual([[1, 0]]);
    expect(judge!.report!()).toMatchObject({ requests: 1, inputTokens: 100 });
    judge!.dispose();
    expect(asked.at(-1)!.model).toBe(model);
    expect(await readFile(join(folder, file), 'utf8')).toContain('incorrect');
  }
});

it('labels of a file evaluate; what it does not have stays unjudged', async () => {
  const steps = ['1+1=2', '2+1=4'].map((text, i) => ({ text, label: 1 - i }));
  const file = fileWith('labels.jsonl', JSON.stringify({ problem: 'What is 1+1+1?', steps }));
  const judge = evaluationJudge(config({ eval_solving: { judge: 'file', judge_file: file } }), noDevice);
  expect(await verdictsOf(judge!)([solution, { ...solution, steps: ['2'] }])).toEqual([[1, 0], [null]]);
});

it.each([
  [{ eval_solving: { judge: 'file' } }, /eval_solving.judge "file" needs eval_solving.judge_file/],
  [
    { judge: { kind: 'file', path: 'a.jsonl' }, eval_solving: { judge: 'file', judge_file: './a.jsonl' } },
    /a.jsonl labels the training data and would judge its own lessons/,
  ],
  [
    { judge: { kind: 'llm', model: 'm' }, eval_solving: { judge: 'llm', llm: { model: 'm' } } },
    /the model "m" at http:\/\/127.0.0.1:8000\/v1 labels the training data and would judge its own lessons/,
  ],
] as const)('refuses %j', (sections, message) => {
  expect(() => config(sections as never)).toThrow(message);
});

it('its budget may grow when the run is resumed', () => {
  const inputs = (tokens: number) => ({ config: { 'eval_solving.llm.token_budget': tokens }, files: {} });
  expect(acceptedChanges('run', inputs(10), inputs(20)).changed).toHaveLength(1);
});

it('keys of a judge of another kind are warned of, those at their defaults are not', () => {
  const warnings = (sections: Record<string, object>) => {
    const said: string[] = [];
    loggingTo(
      (line, level) => void (level === 'warning' && said.push(line)),
      () => config(sections),
    );
    return said;
  };
  expect(
    warnings({
      judge: { kind: 'oracle', completions: 3, path: 'runs/a', url: url() },
      eval_solving: { judge: 'oracle', judge_run: 'runs/b', llm: { model: 'critic' } },
    }),
  ).toEqual([
    'config: judge.path is for judge.kind "run" or "file", and judge.kind is "oracle": it is not read',
    'config: judge.completions is for judge.kind "completions", and judge.kind is "oracle": it is not read',
    'config: judge.url is for judge.kind "llm", and judge.kind is "oracle": it is not read',
    'config: eval_solving.judge_run is for eval_solving.judge "run", and eval_solving.judge is "oracle": it is not read',
    'config: eval_solving.llm is for eval_solving.judge "llm", and eval_solving.judge is "oracle": it is not read',
  ]);
  expect(warnings({ judge: { kind: 'completions', completions: 3 } })).toEqual([]);
  expect(warnings({ judge: { kind: 'run', path: 'runs/a' } })).toEqual([]);
  expect(warnings({ judge: { kind: 'llm', url: url() } })).toEqual([]);
  // base/step_kto has judge.path, and the user chooses another kind.
  const source = { train: 'rows.jsonl', source: 'auto' };
  expect(warnings({ extends: 'base/step_kto' as never, data: source, judge: { kind: 'reference' } })).toEqual(
    [],
  );
});

it('keys of rounds are warned of where there are none', () => {
  const warnings = (sections: Record<string, object>) => {
    const whole = config({ step_kto: { iterations: 0 }, ...sections });
    return [...unreadRoundKeys(whole, { iterations: 0 } as RoundSettings)].map(({ message }) => message);
  };
  expect(warnings({})).toEqual([]);
  expect(
    warnings({
      judge: { completions: 3 },
      sampling: { num_generations: 4, temperature: 0.7 },
      eval_solving: { num_generations: 2 },
    }),
  ).toEqual([
    'judge.completions has no effect: step_kto.iterations is 0, and the labels are those of the data',
    'sampling.num_generations has no effect: step_kto.iterations is 0, and eval_solving.solve is false',
    'sampling.temperature has no effect: step_kto.iterations is 0, and eval_solving.solve is false',
    'eval_solving.num_generations has no effect: step_kto.iterations is 0, and eval_solving.solve is false',
  ]);
  // Held-out problems are solved with the settings of sampling.
  const solving = { solve: true, judge: 'none', num_generations: 2 };
  expect(warnings({ sampling: { num_generations: 4, temperature: 0.7 }, eval_solving: solving })).toEqual([
    'sampling.num_generations has no effect: step_kto.iterations is 0, and it is about candidates of a round',
  ]);
});
