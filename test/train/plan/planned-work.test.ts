// The steps and tokens that a dry run tells are those that the run then takes, for every method.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { isWriting } from '../../../src/files/unfinished.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { train } from '../../../src/methods/run.js';
import { methodOf } from '../../../src/methods/table.js';
import { loggingTo } from '../../../src/terminal/log.js';
import { type DryRunOptions, describeRun } from '../../../src/train/plan/dry-run.js';
import type { StepEvent } from '../../../src/train/step-event.js';

/** What scripts/kills.mjs kills: a run of seconds for every method. */
const script = new URL('../../../scripts/small-runs.mjs', import.meta.url).href;
const { SMALL_RUNS, writeSmallRuns } = (await import(script)) as {
  SMALL_RUNS: Readonly<Record<string, object>>;
  writeSmallRuns(folder: string): ReadonlyMap<string, string>;
};

let folder: string;
let recipes: ReadonlyMap<string, string>;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-planned-'));
  recipes = writeSmallRuns(join(folder, 'recipes'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const LATER = 'known once the stages before it have ended';

async function described(input: object, options: DryRunOptions = {}): Promise<readonly string[]> {
  const config = completeRunConfig(input as never);
  const row = methodOf(config);
  const { lines, time } = await describeRun({ ...row, ...(await row.load()) }, config, options);
  // What is said of a busy machine comes after it.
  return [...lines, ...time.slice(0, 1)];
}

/** Of the small runs those that learn from what they make themselves, and the stages that do. */
const UNTOLD = new Map([
  ['ppo', 'ppo'],
  ['grpo', 'ppo'],
  ['prime', 'ppo'],
  ['distill', 'distill'],
  ['step_kto', 'step_kto-1, step_kto-2'],
  ['s3c', 's3c'],
]);

/** By stage, the steps or that they are known later. */
const stepsIn = (lines: readonly string[]) =>
  new Map(
    lines
      .slice(lines.indexOf('steps:') + 1)
      .filter((line) => line.startsWith('  '))
      .map((line) => /^ {2}(\S+) +(.+)$/.exec(line)?.slice(1) as [string, string]),
  );

/** What is said of the tokens: their number, where there is one, and the stages of which it is not known. */
function tokensIn(lines: readonly string[]): { readonly about?: number; readonly untold?: string } {
  const line = lines.find((each) => each.startsWith('trained tokens: ')) as string;
  const [, number, unit = ''] = /about ([\d.]+)([kM]?)/.exec(line) ?? [];
  const untold = /those of (.*), which learns from what the run makes itself$/.exec(line)?.[1];
  const about = number && { about: Number(number) * { '': 1, k: 1e3, M: 1e6 }[unit as '' | 'k' | 'M'] };
  return { ...about, ...(untold && { untold }) };
}

/** Not of the stages named here. */
function expectTokens(lines: readonly string[], counted: number): void {
  const { about = 0 } = tokensIn(lines);
  expect(Math.abs(about - counted) / counted).toBeLessThan(0.1);
}

const recipe = (name: string) => JSON.parse(readFileSync(recipes.get(name) as string, 'utf8')) as object;

test.each(Object.keys(SMALL_RUNS))('%s', async (name) => {
  const input = recipe(name);
  const lines = await described(input);
  const planned = stepsIn(lines);
  if (name === 'stepamc')
    expect(lines).toContainEqual(
      expect.stringMatching(/^reward_network takes 6 optimizer steps, which teach little/),
    );
  const taken = new Map<string, number>();
  const onStep = ({ stage, stageSteps }: StepEvent) => void taken.set(stage, stageSteps);
  const { status, tokens } = await train(input as never, { output: join(folder, name), onStep });
  expect(status).toBe('finished');
  expect([...planned.keys()]).toEqual(expect.arrayContaining([...taken.keys()]));
  const known = [...planned].filter(([, steps]) => steps !== LATER);
  expect(known.length).toBeGreaterThan(0);
  for (const [stage, steps] of known) expect([stage, taken.get(stage)]).toEqual([stage, Number(steps)]);
  const untold = UNTOLD.get(name);
  if (untold === undefined) expectTokens(lines, tokens);
  else expect(tokensIn(lines)).toEqual({ untold });
});

test.each([
  {},
  { ablation: { no_reward_network: true } },
  { reward_network: { tokens_per_step: 1024, pair_mode: 'step' } },
])('StepAMC with %j trains the tokens that are told', async (more: object) => {
  const { data, sft, ...rest } = recipe('stepamc') as Record<'data' | 'sft', object>;
  const input = {
    ...{ ...rest, ...more },
    sft: { ...sft, max_steps: 2 },
    data: { ...data, arithmetic: { samples: 80 } },
    eval: { max_samples: 4 },
  };
  const lines = await described(input);
  const { tokens } = await train(input as never, { output: join(folder, JSON.stringify(more)) });
  expectTokens(lines, tokens);
});

const budgeted = async (name: string, max_tokens: number) => {
  const { run, ...rest } = recipe(name) as { readonly run: object };
  const lines = await described({ ...rest, run: { ...run, max_tokens } });
  return lines.filter((line) => line.startsWith('run.max_tokens'));
};

test('a plan says where run.max_tokens ends the run before its steps', async () => {
  const before = (ends: string) => [`${ends} the run before these steps, and before the time of all`];
  expect(await budgeted('stepamc', 3000)).toEqual(before('run.max_tokens 3000 ends'));
  expect(await budgeted('stepamc', 1e9)).toEqual([]);
  expect(await budgeted('ppo', 3000)).toEqual(before('run.max_tokens 3000 may end'));
  // Plans its steps for it.
  expect(await budgeted('sft', 3000)).toEqual([]);
});

test('StepAMC takes the largest seed', async () => {
  const { run, ...rest } = recipe('stepamc') as Record<'run', object>;
  const lines = await described({ ...rest, run: { ...run, seed: 2 ** 32 - 1 } });
  expect(stepsIn(lines).size).toBeGreaterThan(1);
});

test('time is told of runs on this machine alone: measured where models may be loaded, else a bound', async () => {
  const lines = await described(recipe('sft'));
  expect(lines.at(-2)).toMatch(/^trained tokens: about \d/);
  expect(lines.at(-1)).toMatch(/^time: at least \d+s, .* at the \d+ GFLOP\/s measured just now/);
  const measured = await described(recipe('sft'), { measure: true, measuredMs: 20 });
  expect(measured.at(-1)).toMatch(/^time: about (\d+m)?\d+s by steps measured just now$/);
  const elsewhere = await described(recipe('sft'), { planFor: 2 ** 34, measure: true, measuredMs: 20 });
  expect(elsewhere.at(-1)).toMatch(/^trained tokens/);
});

test('the plan is told before steps are taken to measure their time, and a stop then leaves nothing', async () => {
  const told: string[] = [];
  let removedAtExit = false;
  const onPlan = ({ lines }: { readonly lines: readonly string[] }) => void told.push(...lines);
  const log = (line: string) => {
    told.push(line);
    removedAtExit ||= line === '  sft' && isWriting();
  };
  const options = { measure: true, measuredMs: 20, onPlan };
  await loggingTo(log, () => described(recipe('sft'), options));
  const at = (start: string) => told.findIndex((line) => line.startsWith(start));
  expect(at('trained tokens')).toBeGreaterThan(0);
  expect(at('taking a few steps')).toBeGreaterThan(at('trained tokens'));
  expect([removedAtExit, isWriting()]).toEqual([true, false]);
});

const timeOf = async (input: object) => (await described(input, { measure: true, measuredMs: 20 })).at(-1);

test.each(Object.keys(SMALL_RUNS))(
  'time of %s can be measured, with that of the stages that learn from what others make',
  async (name) => {
    expect(await timeOf(recipe(name))).toMatch(/^time: about (\d+m)?\d+s by steps measured just now$/);
  },
);

test('a dry run says which stages have nothing to learn from, by what it has made for them', async () => {
  const { sampling, ...rest } = recipe('step_kto') as { readonly sampling: object };
  expect(await timeOf({ ...rest, sampling: { ...sampling, max_new_tokens: 3 } })).toMatch(
    /^time: at least \d+s by .*, without reference-1, step_kto-1, reference-2, step_kto-2: round 1 has nothing to learn from: all 48 candidates were cut off at sampling\.max_new_tokens 3; raise it$/,
  );
});
