// Trains the variants of StepAMC with several seeds and prints mean and deviation as a Markdown table.
//   node scripts/results.mjs quickstart --seeds 1,2,3 [--out runs/results] [--jobs 1] [-- --set key=value …]
// A run that is there already is not repeated, one that was stopped is continued.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

// Each arm is a run of its own here.
const ALONE = 'compare_with=[]';
const VARIANTS = {
  SFT: ['baseline=sft'],
  'SFT continued': ['baseline=sft_continued'],
  DPO: ['baseline=dpo'],
  'PPO (no constraint)': ['ablation.no_scpn=true', ALONE],
  'StepAMC without FRN': ['ablation.no_frn=true', ALONE],
  StepAMC: [ALONE],
};
const METRICS = {
  'F1 macro': ({ metrics }) => metrics.f1_macro,
  Acc_pos: ({ metrics }) => metrics.acc_pos,
  Acc_neg: ({ metrics }) => metrics.acc_neg,
  AUC: ({ metrics }) => metrics.auc,
  'F1 macro at the threshold chosen on validation': ({ threshold_sweep: sweep }) =>
    sweep.chosen.f1_macro.metrics.f1_macro,
};
const MAIN = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));

const [recipe, ...rest] = process.argv.slice(2);
const split = rest.includes('--') ? rest.indexOf('--') : rest.length;
const option = (name, fallback) => {
  const at = rest.indexOf(`--${name}`);
  return at >= 0 && at < split ? rest[at + 1] : fallback;
};
const more = rest.slice(split + 1);
const seeds = option('seeds', '1,2,3').split(',').map(Number);
const out = option('out', 'runs/results');
const only = option('only', Object.keys(VARIANTS).join(',')).split(',');

const folderOf = (name, seed) => join(out, `${name.replaceAll(/\W+/g, '_')}-${seed}`);

function train(name, seed) {
  const folder = folderOf(name, seed);
  if (existsSync(join(folder, 'eval.json'))) return Promise.resolve();
  const settings = [...VARIANTS[name], `run.seed=${seed}`].flatMap((value) => ['--set', value]);
  const args = existsSync(join(folder, 'config.yaml'))
    ? ['run', '--resume', folder]
    : ['run', recipe, '--output', folder, ...settings, ...more];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    let errors = '';
    child.stderr.on('data', (chunk) => {
      errors += chunk;
    });
    child.on('close', (code) => {
      console.error(`${name}, seed ${seed}: ${code === 0 ? 'done' : errors.trim().split('\n').at(-1)}`);
      code === 0 ? resolve() : reject(new Error(`${name}, seed ${seed} failed`));
    });
  });
}

const jobs = only.flatMap((name) => seeds.map((seed) => [name, seed])).sort((a, b) => a[1] - b[1]);
const next = async () => {
  for (let job = jobs.shift(); job; job = jobs.shift()) await train(...job);
};
await Promise.all(Array.from({ length: Number(option('jobs', '1')) }, next));

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const deviation = (values) =>
  Math.sqrt(
    values.reduce((sum, value) => sum + (value - mean(values)) ** 2, 0) / Math.max(1, values.length - 1),
  );
const titles = ['method', 'trained tokens', ...Object.keys(METRICS)];
console.log(`| ${titles.join(' | ')} |\n|${' --- |'.repeat(titles.length)}`);
for (const name of only) {
  const reports = seeds.map((seed) =>
    JSON.parse(readFileSync(join(folderOf(name, seed), 'eval.json'), 'utf8')),
  );
  const cells = Object.values(METRICS).map((metric) => {
    const values = reports.map((report) => 100 * metric(report));
    return `${mean(values).toFixed(1)} ± ${deviation(values).toFixed(1)}`;
  });
  const tokens = mean(reports.map(({ data }) => data.trained_tokens));
  console.log(`| ${[name, `${(tokens / 1e6).toFixed(2)}M`, ...cells].join(' | ')} |`);
}
