// The way from a command to an open model, in the rooms that know names and models: what a reader follows stays short.
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

/** Opens the model in a fresh process and prints the functions that ran, as `room/file name`. */
const PROGRAM = `
  import { Session } from 'node:inspector/promises';
  const [dist, name] = process.argv.slice(1);
  const { openChosenModel } = await import(dist + '/cli/chosen/chosen-model.js');
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  const { model, device } = await openChosenModel({ model: name, device: 'cpu' });
  const { result } = await session.post('Profiler.takePreciseCoverage');
  for (const { url, functions } of result.filter(({ url }) => url.startsWith(dist)))
    for (const { functionName, ranges } of functions)
      if (/^\\w+$/.test(functionName) && ranges[0].count > 0)
        console.log(url.slice(dist.length + 1, -3), functionName);
  model.dispose();
  device.dispose();
`;

it('takes at most 30 functions and climbs at most 5 times to a room above', () => {
  const run = temporaryDirectory();
  cpSync('assets/word-problems-judge', join(run, 'adapter'), { recursive: true });
  // In the dtype of most runs, whose weights are not converted.
  const card = join(run, 'adapter/steptrain.json');
  writeFileSync(card, readFileSync(card, 'utf8').replace('"dtype": "bf16"', '"dtype": "f32"'));
  writeFileSync(join(run, 'config.yaml'), 'method: stepamc\n');
  const dist = pathToFileURL(resolve('dist')).href;
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '--eval', PROGRAM, dist, run],
    { encoding: 'utf8' },
  );
  const roomOf = (place: string) => ROOMS.indexOf(place.split('/')[0] as string);
  const ran = new Set(stdout.split('\n').filter((place) => roomOf(place) >= 0));
  expect(ran.has('cli/chosen/chosen-model openChosenModel'), stderr).toBe(true);
  expect(ran.size, [...ran].join('\n')).toBeLessThanOrEqual(30);
  const order = callsFrom(readSources(resolve('.')), 'src/cli/chosen/chosen-model.ts', 'openChosenModel')
    .map(({ path, name }) => `${path.slice('src/'.length, -'.ts'.length)} ${name}`)
    .filter((place) => ran.has(place));
  expect(order.length).toBeGreaterThan(15);
  const climbs = order.filter((place, i) => i > 0 && roomOf(place) < roomOf(order[i - 1] as string));
  expect(climbs.length, climbs.join('\n')).toBeLessThanOrEqual(5);
});
