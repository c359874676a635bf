// Traces of an agent by a real model, for the evidence on judges of turns (research/agent-traces.md).
//   node research/scripts/agent-traces.mjs folds gpt-4o-airline.json DIR CHARACTERS
//       three parts of its tasks by hash: DIR/1 to 3, each with train, valid and test.jsonl; results of tools are cut to CHARACTERS
//   node research/scripts/agent-traces.mjs table DIR 1,2,3 [NAME=scores.jsonl…]
//       what trivial features and judges tell of the outcomes of these parts; {} in a path is the part
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { BOOTSTRAP, percentileInterval, resample } from '../../dist/eval/statistics/bootstrap.js';
import { fitLogistic } from '../../dist/eval/statistics/logistic.js';

const PARTS = [1, 2, 3];
const hash = (text) => createHash('sha256').update(text).digest('hex');
const rowsOf = (path) =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
const write = (path, rows) => writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));

/** A trace without its policy and with short results; every turn has the outcome as its reward. */
function rowOf({ task_id: task, trial, reward, traj }, characters) {
  const messages = traj.slice(1).map(({ role, content, tool_calls: calls, tool_call_id: id }) => ({
    role,
    content: role === 'tool' ? (content ?? '').slice(0, characters) : content,
    ...(calls ? { tool_calls: calls } : {}),
    ...(id ? { tool_call_id: id } : {}),
  }));
  const turns = messages.filter(({ role }) => role === 'assistant').length;
  return { messages, turn_rewards: Array(turns).fill(reward), reward, task, trial };
}

function folds(from, directory, characters) {
  const traces = JSON.parse(readFileSync(from, 'utf8'));
  const tasks = [...new Set(traces.map(({ task_id: task }) => task))];
  tasks.sort((a, b) => hash(`task ${a}`).localeCompare(hash(`task ${b}`)));
  for (const part of PARTS) {
    const test = tasks.filter((_, i) => i % PARTS.length === part - 1);
    const others = tasks.filter((task) => !test.includes(task));
    const rows = (some) =>
      traces
        .filter(({ task_id: task }) => some.includes(task))
        .map((trace) => rowOf(trace, Number(characters)));
    mkdirSync(`${directory}/${part}`, { recursive: true });
    write(`${directory}/${part}/test.jsonl`, rows(test));
    write(`${directory}/${part}/valid.jsonl`, rows(others.slice(0, 3)));
    write(`${directory}/${part}/train.jsonl`, rows(others.slice(3)));
  }
}

const WRITES = /^(book|cancel|update)_reservation|^send_certificate/;

/** What can be seen without reading. */
const FEATURES = {
  'characters of the trace': ({ messages }) => JSON.stringify(messages).length,
  turns: ({ messages }) => messages.filter(({ role }) => role === 'assistant').length,
  'calls of tools': ({ messages }) => callsOf(messages).length,
  'calls that change something': ({ messages }) =>
    callsOf(messages).filter((name) => WRITES.test(name)).length,
  'results that are errors': ({ messages }) =>
    messages.filter(({ role, content }) => role === 'tool' && /^Error/.test(content)).length,
  'hands over to a person': ({ messages }) =>
    callsOf(messages).includes('transfer_to_human_agents') ? 1 : 0,
  'characters of the last turn': ({ messages }) =>
    (messages.findLast(({ role }) => role === 'assistant').content ?? '').length,
};

const callsOf = (messages) =>
  messages.flatMap(({ tool_calls: calls }) => (calls ?? []).map((call) => call.function.name));

/** A logistic regression on the logarithms of features, of training rows. */
function regression(rows, features) {
  const seen = (row) => features.map((of) => Math.log1p(of(row)));
  const fitted = fitLogistic(
    rows.map(seen),
    rows.map(({ reward }) => reward),
  );
  return (row) => fitted(seen(row));
}

/** Share of the pairs of a right and a wrong trace with the same value of `by` that are ordered rightly; tasks count as often as drawn. */
function auc(scored, by, times) {
  let [right, all] = [0, 0];
  for (const a of scored) {
    if (a.reward !== 1 || times(a.task) === 0) continue;
    for (const b of scored) {
      if (b.reward === 1 || a[by] !== b[by]) continue;
      const weight = times(a.task) * (by === 'task' ? 1 : times(b.task));
      all += weight;
      right += weight * (a.score > b.score ? 1 : a.score === b.score ? 0.5 : 0);
    }
  }
  return right / all;
}

/** Share of tasks whose best-scored trace is right; of equals their mean. */
function bestOf(scored) {
  const tasks = [...new Set(scored.map(({ task }) => task))];
  const chosen = tasks.map((task) => {
    const traces = scored.filter((one) => one.task === task);
    const most = Math.max(...traces.map(({ score }) => score));
    const best = traces.filter(({ score }) => score === most);
    return best.reduce((sum, { reward }) => sum + reward, 0) / best.length;
  });
  return chosen.reduce((sum, one) => sum + one, 0) / chosen.length;
}

function table(directory, chosen, judges) {
  const parts = chosen.map((part) => ({
    part,
    train: ['train', 'valid'].flatMap((name) => rowsOf(`${directory}/${part}/${name}.jsonl`)),
    test: rowsOf(`${directory}/${part}/test.jsonl`),
  }));
  const names = Object.entries(FEATURES);
  const candidates = [
    ...names.map(([name, of]) => [name, ({ train }) => regression(train, [of])]),
    [
      'all of these',
      ({ train }) =>
        regression(
          train,
          names.map(([, of]) => of),
        ),
    ],
  ].map(([name, learned]) => [
    name,
    parts.flatMap((one) => {
      const of = learned(one);
      return one.test.map((row) => ({ ...row, part: one.part, score: of(row) }));
    }),
  ]);
  for (const judge of judges) {
    const [name, path] = judge.split('=');
    const scored = parts.map(({ part, test }) => ({
      part,
      test,
      scores: rowsOf(path.replace('{}', part)),
    }));
    const of = (read) =>
      scored.flatMap(({ part, test, scores }) =>
        test.map((row, i) => ({ ...row, part, score: read(scores[i].scores) })),
      );
    candidates.push([`${name}, last turn`, of((all) => all.at(-1))]);
    // A scorer of outcomes has a score for the last turn alone.
    if (scored[0].scores[0].scores[0] !== null) {
      candidates.push([`${name}, mean of turns`, of((all) => all.reduce((a, b) => a + b, 0) / all.length)]);
      candidates.push([`${name}, least of turns`, of((all) => Math.min(...all))]);
      candidates.push([`${name}, half of the turns`, of((all) => all[Math.ceil(all.length / 2) - 1])]);
    }
  }
  const once = () => 1;
  console.log(
    '| what | each part | within parts | within tasks | the best of four |\n| --- | --- | --- | --- | --- |',
  );
  for (const [name, scored] of candidates) {
    const tasks = [...new Set(scored.map(({ task }) => task))];
    const places = new Map(tasks.map((task, i) => [task, i]));
    const each = chosen.map((part) =>
      auc(
        scored.filter((one) => one.part === part),
        'part',
        once,
      ).toFixed(3),
    );
    const whole = ['part', 'task'].map((by) => {
      const drawn = resample(tasks.length, BOOTSTRAP, (weights) =>
        auc(scored, by, (task) => weights[places.get(task)]),
      );
      const [low, high] = percentileInterval(drawn.filter(Number.isFinite));
      return `${auc(scored, by, once).toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`;
    });
    console.log(
      `| ${name} | ${each.join(', ')} | ${whole.join(' | ')} | ${(100 * bestOf(scored)).toFixed(1)} % |`,
    );
  }
}

const [mode, ...given] = process.argv.slice(2);
if (mode === 'folds') folds(...given);
else if (mode === 'table') table(given[0], given[1].split(',').map(Number), given.slice(2));
else throw new Error('folds or table');
