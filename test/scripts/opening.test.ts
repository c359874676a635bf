// The ways from a command to an open model and from train(config) to its method, in the rooms that know names and models: what a reader follows
// stays short.
import { spawnSync } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';
import { temporaryDirectory } from '../weights/temporary-directory.js';

type Sources = ReadonlyMap<string, unknown>;
type Calls = readonly { readonly path: string; readonly name: string }[];

const load = (name: string) =>
  import(new URL(`../../scripts/architecture/${name}.mjs`, import.meta.url).href);
const { readSources }: { readSources(root: string): Sources } = await load('sources');
const { callsFrom }: { callsFrom(sources: Sources, path: string, name: string): Calls } = await load('calls');

/** From the top down; below are formats, tensors and the addon. */
const ROOMS = ['cli', 'methods', 'train', 'scoring', 'run', 'config', 'hub', 'api', 'models'];

/** Runs `work` in a fresh process and prints the functions that ran, as `room/file name`. */
const program = (work: string) => `
  import { Session } from 'node:inspector/promises';
  const [dist, name] = process.argv.slice(1);
  const { openChosenModel } = await import(dist + '/cli/chosen/chosen-model.js');
  const { train } = await import(dist + '/methods/run.js');
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  const opened = await ${work};
  const { result } = await session.post('Profiler.takePreciseCoverage');
  for (const { url, functions } of result.filter(({ url }) => url.startsWith(dist)))
    for (const { functionName, ranges } of functions)
      if (/^\\w+$/.test(functionName) && ranges[0].count > 0)
        console.log(url.slice(dist.length + 1, -3), functionName);
  opened.model?.dispose();
  opened.device?.dispose();
`;

/** Functions that the compiler puts into a file for `using`. */
const COMPILED = / (__addDisposableResource|__disposeResources|next)$/;

const roomOf = (place: string) => ROOMS.indexOf(place.split('/')[0] as string);

/** The functions of the rooms that ran in `work`, and those of them that a reader meets who follows the calls of `name`, in order. */
function walkOf(work: string, argument: string, path: string, name: string) {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '--eval', program(work), pathToFileURL(resolve('dist')).href, argument],
    { encoding: 'utf8' },
  );
  const ran = new Set(stdout.split('\n').filter((place) => roomOf(place) >= 0 && !COMPILED.test(place)));
  const order = callsFrom(readSources(resolve('.')), path, name)
    .map((at) => `${at.path.slice('src/'.length, -'.ts'.length)} ${at.name}`)
    .filter((place) => ran.has(place));
  expect(order[0], stderr).toBe(`${path.slice('src/'.length, -'.ts'.length)} ${name}`);
  return { ran, order };
}

const climbsOf = (order: readonly string[]) =>
  order.filter((place, i) => i > 0 && roomOf(place) < roomOf(order[i - 1] as string));

it('takes at most 30 functions and climbs at most 5 times to a room above', () => {
  const run = temporaryDirectory();
  cpSync('assets/word-problems-judge', join(run, 'adapter'), { recursive: true });
  // In the dtype of most runs, whose weights are not converted.
  const card = join(run, 'adapter/steptrain.json');
  writeFileSync(card, readFileSync(card, 'utf8').replace('"dtype": "bf16"', '"dtype": "f32"'));
  writeFileSync(join(run, 'config.yaml'), 'method: stepamc\n');
  const work = `openChosenModel({ model: name, device: 'cpu' })`;
  const { ran, order } = walkOf(work, run, 'src/cli/chosen/chosen-model.ts', 'openChosenModel');
  expect(ran.size, [...ran].join('\n')).toBeLessThanOrEqual(30);
  expect(order.length).toBeGreaterThan(15);
  const climbs = climbsOf(order);
  expect(climbs.length, climbs.join('\n')).toBeLessThanOrEqual(5);
});

it('train(config) goes on to another file at most 40 times before the method runs, and climbs at most 10 times', () => {
  const work = `train(
    { method: 'sft', lora: { r: 2 }, data: { source: 'arithmetic', arithmetic: { samples: 24 }, max_length: 200 },
      sft: { max_steps: 1 }, run: { device: 'cpu', threads: 1, report_to: [] } },
    { output: name, log: () => {} })`;
  const { order } = walkOf(work, join(temporaryDirectory(), 'run'), 'src/methods/run.ts', 'train');
  const before = order.slice(0, order.indexOf('train/recipe runMethod') + 1);
  expect(before.length).toBeGreaterThan(30);
  const stops = before.filter((place, i) => place.split(' ')[0] !== before[i - 1]?.split(' ')[0]);
  expect(stops.length, stops.join('\n')).toBeLessThanOrEqual(40);
  const climbs = climbsOf(before);
  expect(climbs.length, climbs.join('\n')).toBeLessThanOrEqual(10);
});
