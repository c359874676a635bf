// Turns the logs of the parts of gpu-check.sh into metrics for the report and one headline each.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { curvesOf } from './curves.mjs';

/** `headline`: one line; `passed`: false where the metrics say so although the command ended well. */
export function findingsOf(part, logs, work) {
  const log = textOf(join(logs, `${part}.log`));
  const obstacle = log.split('\n').findLast((line) => line.startsWith('gpu-check: '));
  const reader = readers[part] ?? readers[part.replace(/-.*/, '')];
  const found = reader?.(part, logs, work, log) ?? {};
  if (obstacle) return { ...found, headline: obstacle.slice('gpu-check: '.length) };
  // Where nothing else tells, the end of the log may.
  return found.headline ? found : { ...found, headline: lastLine(log) };
}

const textOf = (path) => (existsSync(path) ? readFileSync(path, 'utf8') : '');
const lastLine = (log) => log.trim().split('\n').at(-1)?.slice(0, 300) ?? '';
/** JSON of a file that may be absent or cut off. */
function jsonOf(path) {
  try {
    return JSON.parse(textOf(path));
  } catch {
    return undefined;
  }
}
/** Lines of JSON; a last one that was cut off is left out. */
export function linesOf(path) {
  return textOf(path)
    .split('\n')
    .flatMap((line) => {
      try {
        return line ? [JSON.parse(line)] : [];
      } catch {
        return [];
      }
    });
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

function testsOf(part, logs) {
  const tests = linesOf(join(logs, `${part}.jsonl`));
  const failures = tests.filter(({ state }) => state === 'failed');
  const counts = { tests: tests.length, failed: failures.length };
  return {
    ...counts,
    failures,
    slowest: tests
      .toSorted((a, b) => b.milliseconds - a.milliseconds)
      .slice(0, 5)
      .map(({ name, milliseconds }) => ({ name, milliseconds })),
    passed: failures.length === 0 && tests.length > 0,
    headline:
      tests.length === 0
        ? 'no test ran'
        : `${tests.length - failures.length} of ${tests.length} tests passed${failures[0] ? `; first failure: ${failures[0].name}` : ''}`,
  };
}

function sanitizerOf(part, logs, _work, log) {
  const tests = testsOf(part, logs);
  // Each process of the tests ends with a summary of its own.
  const errors = [...log.matchAll(/ERROR SUMMARY: (\d+) error/g)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
  const first = log
    .split('\n')
    .find((line) => /^=+ (Invalid|Error|Race|Barrier|Uninitialized|Program hit)/.test(line));
  return {
    ...tests,
    errors,
    first,
    passed: tests.passed && errors === 0,
    headline: `${errors} errors; ${tests.headline}${first ? `; first: ${first.replace(/^=+ /, '')}` : ''}`,
  };
}

/** Time of the fastest rival over ours, over all cases that both sides did. */
function benchHeadline({ groups = [] }) {
  const cases = groups.flatMap(({ results }) => results);
  const ratios = cases.flatMap(({ ours, rival }) => {
    const rivals = Object.values(rival).flatMap(({ spread }) => (spread ? [spread.median] : []));
    return ours.spread && rivals.length > 0 ? [Math.min(...rivals) / ours.spread.median] : [];
  });
  const failed = cases.filter(({ ours }) => !ours.spread).length;
  const compared =
    ratios.length > 0
      ? `; rival / ours ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}, median ${median(ratios).toFixed(2)}`
      : '; no rival';
  return `${cases.length} cases${compared}${failed > 0 ? `; ${failed} of ours failed` : ''}`;
}

function benchOf(part, logs, _work, log) {
  const metrics = jsonOf(join(logs, `${part}.json`));
  // A bench that was stopped has written no file yet, but its tables so far.
  return metrics ? { metrics, headline: benchHeadline(metrics) } : { tables: log.split('\n').slice(0, 400) };
}

const GiB = (bytes) =>
  bytes === undefined || bytes === null ? '?' : `${(bytes / 2 ** 30).toPrecision(3)} GiB`;
const PHASES = ['rollout', 'reward', 'update'];

/** Median seconds of each phase over all iterations but the first, which warms up. */
function phaseSeconds(iterations) {
  const counted = iterations.length > 1 ? iterations.slice(1) : iterations;
  if (counted.length === 0) return undefined;
  const seconds = Object.fromEntries(
    PHASES.map((name) => [name, median(counted.map((one) => one[`${name}_seconds`]))]),
  );
  return { ...seconds, whole: PHASES.reduce((sum, name) => sum + seconds[name], 0) };
}

/** StepAMC on a known shape: phases, rates and memory, beside the rival's where there is one. */
function shapeOf(part, logs, _work, log) {
  const lines = linesOf(join(logs, `${part}.metrics.jsonl`));
  const steps = (phase) => lines.filter((line) => line.phase === phase && line.tokens_per_second);
  const numbers = [...new Set(steps('ppo').map(({ iteration }) => iteration))];
  const iterations = numbers.map((number) => steps('ppo').filter(({ iteration }) => iteration === number));
  const ours = phaseSeconds(
    iterations.map((passes) => ({
      rollout_seconds: passes[0].rollout_seconds,
      reward_seconds: passes[0].reward_seconds,
      update_seconds: passes.reduce((sum, { update_seconds }) => sum + update_seconds, 0),
    })),
  );
  if (!ours) return {};
  const stages = Object.fromEntries(
    ['sft', 'frn', 'ppo'].map((phase) => [
      phase,
      {
        tokens_per_second: median(
          steps(phase)
            .slice(1)
            .map((line) => line.tokens_per_second),
        ),
        peak_bytes: steps(phase).at(-1)?.peak_bytes,
      },
    ]),
  );
  const peers = ['bf16', 'f32'].flatMap((adapters) => {
    const peer = jsonOf(join(logs, `${part}.peer-${adapters}.json`));
    return peer ? [{ ...peer, seconds: phaseSeconds(peer.iterations) }] : [];
  });
  const best = peers.toSorted((a, b) => a.seconds.whole - b.seconds.whole)[0];
  const verdicts = steps('ppo').at(-1)?.rollout_verdicts;
  const said = log.split('\n');
  const missing =
    said.find((line) => line.startsWith('no rival')) ??
    `the rival failed: ${said.findLast((line) => /^\S*Error/.test(line)) ?? 'see the log'}`;
  return {
    ours: { seconds: ours, verdicts, stages, memory: jsonOf(join(logs, `${part}.memory.json`)) },
    peers,
    ...(peers.length > 0 ? {} : { missing }),
    headline:
      `${verdicts} verdicts an iteration: rollout ${ours.rollout.toFixed(3)} s, reward ${ours.reward.toFixed(3)} s, update ` +
      `${ours.update.toFixed(3)} s, peak ${GiB(stages.ppo.peak_bytes)}; ` +
      (best
        ? `rival (${best.adapters} adapters) ${PHASES.map((name) => best.seconds[name].toFixed(3)).join(', ')} s, peak ` +
          `${GiB(best.peak_bytes)}, ${(best.seconds.whole / ours.whole).toFixed(2)} times ours`
        : missing),
  };
}

/** What whole runs came to. */
function runsOf(names) {
  return (_part, logs) => {
    const runs = Object.fromEntries(
      names.map((name) => {
        const lines = linesOf(join(logs, `${name}.metrics.jsonl`));
        const phases = {};
        for (const line of lines.filter(({ tokens_per_second }) => tokens_per_second)) {
          phases[line.phase] ??= { losses: [], rates: [] };
          phases[line.phase].losses.push(Number(line.loss.toPrecision(5)));
          phases[line.phase].rates.push(line.tokens_per_second);
          phases[line.phase].peak_bytes = line.peak_bytes;
        }
        for (const phase of Object.values(phases)) {
          phase.tokens_per_second = Math.round(median(phase.rates));
          delete phase.rates;
        }
        const { metrics, baselines } = jsonOf(join(logs, `${name}.eval.json`)) ?? {};
        const memory = jsonOf(join(logs, `${name}.memory.json`));
        const test = lines.findLast(({ phase }) => phase === 'test');
        return [name, { steps: lines.at(-1)?.step, phases, test, metrics, baselines, memory }];
      }),
    );
    const short = Object.entries(runs).flatMap(([name, { test, steps }]) => {
      if (!test) return steps === undefined ? [] : [`${name} ${steps} steps`];
      const metrics = ['token_accuracy', 'validation_loss', 'f1_macro', 'balanced_accuracy', 'auc'];
      const shown = metrics
        .filter((metric) => metric in test)
        .map((metric) => `${metric} ${test[metric].toFixed(4)}`);
      return [`${name} ${steps} steps, ${shown.join(', ')}`];
    });
    return { runs, headline: short.join('; ') };
  };
}

const readers = {
  ops: testsOf,
  models: testsOf,
  trace: testsOf,
  quickstart: (_part, _logs, work) => curvesOf(join(work, 'quickstart')),
  sanitizer: sanitizerOf,
  bench: benchOf,
  'stepamc-0.5b': shapeOf,
  'stepamc-1.5b': shapeOf,
  'pretrain-25m': runsOf(['pretrain-25m']),
  'stepamc-25m': runsOf(['stepamc-25m']),
  prm800k: runsOf(['prm800k-sft', 'prm800k-pretrain', 'prm800k-stepamc']),
};

/** Lowest, median and highest value of each metric that nvidia-smi was asked for while a part ran. */
export function clocksOf(path) {
  const [names, ...rows] = textOf(path)
    .trim()
    .split('\n')
    .map((line) => line.split(',').map((cell) => cell.trim()));
  if (rows.length === 0) return undefined;
  const ranges = {};
  names.forEach((name, i) => {
    const numbers = rows
      .map((row) => Number(row[i]))
      .filter(Number.isFinite)
      .sort((a, b) => a - b);
    if (numbers.length > 0) ranges[name] = [numbers[0], numbers[numbers.length >> 1], numbers.at(-1)];
    else if (name !== 'timestamp') ranges[name] = rows[0][i];
  });
  return ranges;
}
