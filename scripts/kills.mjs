// Kills runs with SIGKILL at random moments, resumes them each time, and compares what they end with, bit for bit, with runs that nobody
// stopped. Without a recipe, the small runs of every method in turn (scripts/small-runs.mjs). Runs that end before all their kills
// were made are begun anew.
// --ranks N: in 2 to N processes, one of which is killed or stopped; what goes on has another number of them, and the bits of one.
//   node scripts/kills.mjs [RECIPE] [-n KILLS] [--seed N] [--ranks N] [--set KEY=VALUE …]
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { killedJob } from './killed-jobs.mjs';
import { contents, differences, killedRun, steptrain, uniform } from './killed-runs.mjs';
import { writeSmallRuns } from './small-runs.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    kills: { type: 'string', short: 'n', default: '100' },
    seed: { type: 'string', default: '1' },
    ranks: { type: 'string', default: '1' },
    set: { type: 'string', multiple: true, default: [] },
  },
});
const folder = mkdtempSync(join(tmpdir(), 'steptrain-kills-'));
const recipes =
  positionals.length > 0
    ? positionals.map((path) => [path, path])
    : [...writeSmallRuns(join(folder, 'recipes'))];
const kills = Number(values.kills);
const ranks = Number(values.ranks);
const shards = ranks > 1 ? [`run.shards=${ranks}`] : [];
const sets = [...values.set, ...shards].flatMap((each) => ['--set', each]);
const kill = ranks > 1 ? killedJob : killedRun;
const random = uniform(values.seed);
const phases = new Map();
let [made, ended, different] = [0, 0, 0];

/** Moments until as many kills are made; seconds of processor time, within those that the whole run took. */
function* moments(time, until) {
  while (made < until) yield 0.9 * random.next().value * time;
}

/** Kills runs of one recipe until `until` kills are made in all. */
async function killUntil(name, recipe, until) {
  const whole = join(folder, 'whole');
  const first = await steptrain(['run', recipe, '--output', whole, ...sets]);
  if (first.code !== 0) throw new Error(first.said);
  const time = first.spent;
  const expected = contents(whole);
  rmSync(whole, { recursive: true, force: true });
  console.log(
    `${name}: not stopped ${time.toFixed(1)} s of processor time, ${Object.keys(expected).length} files`,
  );
  while (made < until) {
    const directory = join(folder, `run-${ended}`);
    const killed = await kill(recipe, directory, moments(time, until), {
      sets,
      ranks,
      random,
      onKill: () => made++,
    });
    for (const phase of killed) phases.set(phase, (phases.get(phase) ?? 0) + 1);
    ended++;
    const others = differences(expected, contents(directory));
    different += others.length;
    const bits = others.length === 0 ? 'the same bits' : `other ${others.join(', ')}`;
    console.log(`  run ${ended}: ${killed.length} kills (${killed.join(', ')}), ${bits}`);
    rmSync(directory, { recursive: true, force: true });
  }
}

for (const [i, [name, recipe]] of recipes.entries())
  await killUntil(name, recipe, Math.round((kills * (i + 1)) / recipes.length));
rmSync(folder, { recursive: true, force: true });
const where = [...phases].map(([phase, count]) => `${phase} ${count}`).join(', ');
console.log(`${made} kills (${where}), ${ended} runs to their end, ${different} files that differ`);
process.exitCode = different > 0 ? 1 : 0;
