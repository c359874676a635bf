// Sums up what run.sh found, beside the newest earlier result of each case on the same GPU:
//   node scripts/device/report.mjs OUT … [--results FOLDER]
// Several OUT, of calls one after the other, are one report: the last result of a test or a case counts.
// It goes to <gpu>-<date>.json in bench/results or FOLDER; of a second run on the same day to …-2.json. Cases that take
// more than 5 % longer than before are marked with `!`; those whose rivals were not timed again stand beside the
// earlier ones. What cannot be read, of OUT or of earlier results, is left out and named.
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';

const SLOWER = 1.05;
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { results: { type: 'string' } },
});
const results = values.results ?? fileURLToPath(new URL('../../bench/results', import.meta.url));

/** Without lines that were cut off. */
function linesOf(out) {
  const path = join(out, 'lines.jsonl');
  if (!existsSync(path)) fail(`there is no ${path}: give a folder that scripts/device/run.sh wrote`);
  const written = readFileSync(path, 'utf8').split('\n').filter(Boolean);
  const lines = written.map(parsed).filter((line) => typeof line?.kind === 'string');
  if (lines.length < written.length) warn(`${written.length - lines.length} lines of ${path} cannot be read`);
  return lines;
}

/** undefined for what is no JSON. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {}
}

function warn(message) {
  console.error(`report.mjs: ${message}`);
}

function fail(message) {
  warn(message);
  process.exit(1);
}

/** The last of each key, in the order in which they first came. */
function latest(lines, keyOf) {
  const found = new Map();
  for (const line of lines) found.set(keyOf(line), line);
  return [...found.values()];
}

const without = ({ kind, side, ...rest }) => rest;
const caseKey = ({ op, name }) => JSON.stringify([op, name]);

function testsOf(lines) {
  const sets = new Map();
  for (const test of latest(lines, ({ set, name }) => JSON.stringify([set, name])))
    sets.set(test.set, [...(sets.get(test.set) ?? []), test]);
  return [...sets].map(([set, tests]) => ({
    set,
    passed: tests.filter(({ state }) => state === 'passed').length,
    failed: tests.filter(({ state }) => state === 'failed').map(({ name, errors }) => ({ name, errors })),
  }));
}

function benchesOf(lines) {
  const ours = latest(
    lines.filter(({ side }) => side === 'ours'),
    caseKey,
  );
  const rivals = latest(
    lines.filter(({ side }) => side === 'rival'),
    (line) => `${caseKey(line)} ${line.setting}`,
  );
  const named = new Map(ours.map((line) => [caseKey(line), without(line)]));
  for (const { group, op, name, setting, ...found } of rivals.map(without)) {
    const key = caseKey({ op, name });
    const beside = named.get(key) ?? { group, op, name };
    named.set(key, { ...beside, rivals: [...(beside.rivals ?? []), { setting, ...found }] });
  }
  return [...named.values()];
}

/** Cards of one name have one, without the words that tell their memory. */
function slugOf(gpu) {
  const words = gpu.toLowerCase().split(/[^a-z0-9]+/);
  return words.filter((word) => word && !/^(\d+gb|hbm\w*)$/.test(word)).join('-');
}

/** Reports of the same GPU that began before this one, the oldest first, and the name of the file for this one. */
function earlier(mine) {
  const slug = slugOf(mine.machine.gpu);
  const pattern = new RegExp(`^${slug}-(\\d{4}-\\d\\d-\\d\\d)(?:-(\\d+))?\\.json$`);
  const files = readdirSync(results).flatMap((file) => {
    const [, date, number = 1] = pattern.exec(file) ?? [];
    return date ? [{ file, date, number: Number(number) }] : [];
  });
  const found = files.flatMap((one) => {
    const report = parsed(readFileSync(join(results, one.file), 'utf8'));
    if (report?.machine?.gpu && Array.isArray(report.bench))
      return report.machine.gpu === mine.machine.gpu
        ? // Of one that tells no time of day, only that day.
          [{ ...one, report, started: report.machine.started ?? one.date }]
        : [];
    warn(`${join(results, one.file)} is no whole report of this script; it is left out`);
    return [];
  });
  const before = found.filter(({ started }) => started < mine.machine.started);
  before.sort((a, b) => a.date.localeCompare(b.date) || a.number - b.number);
  // The same OUT again, with more in it, replaces its report.
  const own = found.find(({ started }) => started === mine.machine.started)?.file;
  const date = mine.machine.started.slice(0, 10);
  const today = files.filter((one) => one.date === date).map(({ number }) => number);
  const free = today.length === 0 ? '' : `-${Math.max(...today) + 1}`;
  return { before, file: own ?? `${slug}-${date}${free}.json` };
}

function reportOf(lines) {
  const of = (kind) => lines.filter((line) => line.kind === kind);
  const machines = of('machine').map(without);
  const [machine] = machines;
  if (!machine?.gpu || !machine.started) fail('no line says which machine it was, and when');
  const gpus = [...new Set(machines.map(({ gpu }) => gpu))];
  if (gpus.length > 1) fail(`these are of several GPUs, ${gpus.join(' and ')}: give the folders of one`);
  const main = of('main').at(-1)?.eval;
  return {
    machine,
    parts: latest(of('part'), ({ name }) => name).map(without),
    tests: testsOf(of('test')),
    sanitizers: latest(of('sanitizer'), ({ name }) => name).map(without),
    ...(of('arrivals').length > 0 ? { arrivals: without(of('arrivals').at(-1)) } : {}),
    ...(of('gpu').length > 0 ? { lost: of('gpu').map(({ after }) => after) } : {}),
    bench: benchesOf(of('bench')),
    choice: latest(of('choice'), ({ kernels, op, name }) => JSON.stringify([kernels, op, name])).map(without),
    ...(main ? { main: { method: main.method, metrics: main.metrics } } : {}),
  };
}

const number = (value) => (typeof value === 'number' ? String(Number(value.toPrecision(4))) : '–');
const STYLE = { head: [], border: [], compact: true };

/** `when`: where the rival was not timed again. */
function fastest(rivals, when = '') {
  if (!Array.isArray(rivals)) return;
  const [best] = rivals.filter(({ ms }) => ms).sort((a, b) => a.ms - b.ms);
  return best && { ms: best.ms, setting: best.setting + when };
}

function benchTable({ bench }, before) {
  // The newest of each case: a run may have been of some parts alone.
  const [known, timed] = [new Map(), new Map()];
  for (const { date, report } of before)
    for (const one of report.bench) {
      if (one.ms) known.set(caseKey(one), one.ms);
      if (fastest(one.rivals)) timed.set(caseKey(one), fastest(one.rivals, ` (${date})`));
    }
  const head = ['op', 'case', 'ms', 'best rival', 'ms', 'ratio', 'before', 'change'];
  const table = new Table({ head, style: STYLE });
  for (const { op, name, ms, error, rivals = [] } of bench) {
    const was = known.get(caseKey({ op, name }));
    const best = fastest(rivals) ?? timed.get(caseKey({ op, name }));
    const change = ms && was ? `${((ms / was - 1) * 100).toFixed(1)} %${ms > SLOWER * was ? ' !' : ''}` : '';
    table.push([
      op,
      name,
      error ? `${error}`.slice(0, 40) : number(ms),
      best?.setting ?? `${rivals[0]?.error ?? ''}`.slice(0, 30),
      number(best?.ms),
      ms && best ? (best.ms / ms).toFixed(2) : '',
      number(was),
      change,
    ]);
  }
  return table.toString();
}

function choiceTable({ choice }) {
  const table = new Table({
    head: ['successor', 'op', 'case', 'verified', 'new', 'ratio', 'faster'],
    style: STYLE,
  });
  for (const { kernels, op, name, verified, successor, ratio, winner, error } of choice)
    table.push([
      kernels,
      op,
      name,
      number(verified?.[0]),
      number(successor?.[0]),
      number(ratio),
      winner ?? `${error ?? ''}`.slice(0, 60),
    ]);
  return table.toString();
}

function sentences({ parts, tests, sanitizers, arrivals, lost = [] }) {
  const said = tests.flatMap(({ set, passed, failed }) => [
    `${set}: ${passed} of ${passed + failed.length} tests passed`,
    ...failed.map(({ name, errors = [] }) => `  failed: ${name}: ${errors[0]?.split('\n')[0] ?? ''}`),
  ]);
  for (const { name, errors, kernels, first } of sanitizers) {
    const where = kernels ? ` in ${kernels.replaceAll('\n', ', ')}` : '';
    said.push(
      `${name}: ${errors < 0 ? 'no summary' : `${errors} findings${where}`}${first ? `; ${first.split('\n')[0]}` : ''}`,
    );
  }
  if (arrivals)
    said.push(
      `every lane arrives: ${arrivals.same === 'yes' ? `the same bits in ${arrivals.cases} cases` : `other bits (${arrivals.differ})`}`,
    );
  for (const name of lost) said.push(`after ${name} the GPU did not answer`);
  for (const { name, code, seconds } of parts)
    if (code !== 0)
      said.push(`${name}: ${code === -1 ? 'not begun' : `ended with ${code} after ${seconds} s`}`);
  return said;
}

/** What `work` returns; a sentence where the results cannot be written. */
function writing(work) {
  try {
    return work();
  } catch (error) {
    fail(`${results} cannot be written (${error.code}): name another folder by --results`);
  }
}

if (positionals.length === 0) fail('name the folder that scripts/device/run.sh wrote');
const report = reportOf(positionals.flatMap(linesOf));
writing(() => mkdirSync(results, { recursive: true }));
const { before, file } = earlier(report);
const path = join(results, file);
writing(() => {
  writeFileSync(`${path}.part`, `${JSON.stringify(report, undefined, 1)}\n`);
  renameSync(`${path}.part`, path);
});
for (const sentence of sentences(report)) console.log(sentence);
if (report.bench.length > 0) console.log(benchTable(report, before));
if (report.choice.length > 0) console.log(choiceTable(report));
console.log(`results in ${path}, beside ${before.map((one) => one.file).join(', ') || 'none before'}`);
