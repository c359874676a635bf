// An agent that corrects a wrong turn, for the evidence on S3c over turns (research/s3c.md).
//   node research/scripts/turn-corrections.mjs traces train.jsonl test.jsonl DIR
//       of generated problems (data problems): train.jsonl, in which each problem with a misconception has a right trace and one whose
//       wrong turn is corrected; wrong.jsonl and right.jsonl, held-out traces up to a wrong turn, or the right one in its place
//   node research/scripts/turn-corrections.mjs table DIR NAME…
//       the share of episodes solved from there, of DIR/NAME-wrong/labels.jsonl and DIR/NAME-right/labels.jsonl
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { CALCULATOR, CALCULATOR_TOOL, computed } from '../../dist/data/equations/calculator.js';
import { BOOTSTRAP, percentileInterval, resample } from '../../dist/eval/statistics/bootstrap.js';

const rowsOf = (path) =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

/** A call of the calculator, and its result. */
function turn({ about, left, op, right }) {
  const expression = `${left.value} ${op} ${right.value}`;
  return [
    {
      role: 'assistant',
      content: about,
      tool_calls: [{ type: 'function', function: { name: CALCULATOR, arguments: { expression } } }],
    },
    { role: 'tool', name: CALCULATOR, content: computed(expression) },
  ];
}

/** The right trace, the one with a corrected turn, and both up to that turn; undefined without a step that is easily misread. */
function tracesOf({ problem, answer, plan }) {
  const places = plan.flatMap(({ misread, left, right }, i) =>
    misread && !(misread === '-' && left.value < right.value) ? [i] : [],
  );
  if (places.length === 0) return undefined;
  const at = places[createHash('sha256').update(problem).digest()[0] % places.length];
  const ask = { role: 'user', content: problem };
  const before = [ask, ...plan.slice(0, at).flatMap(turn)];
  const wrong = turn({ ...plan[at], op: plan[at].misread });
  const right = turn(plan[at]);
  const rest = [...plan.slice(at + 1).flatMap(turn), { role: 'assistant', content: `Answer: ${answer}` }];
  const row = (messages, labels) => ({ messages, tools: [CALCULATOR_TOOL], turn_rewards: labels, answer });
  const ones = (count) => Array(count).fill(1);
  return {
    clean: row([...before, ...right, ...rest], ones(plan.length + 1)),
    corrected: row([...before, ...wrong, ...right, ...rest], [...ones(at), 0, ...ones(plan.length - at + 1)]),
    wrong: row([...before, ...wrong], [...ones(at), 0]),
    right: row([...before, ...right], ones(at + 1)),
  };
}

function traces(train, test, directory) {
  const made = (path) => rowsOf(path).flatMap((problem) => tracesOf(problem) ?? []);
  const write = (name, rows) =>
    writeFileSync(`${directory}/${name}.jsonl`, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  mkdirSync(directory, { recursive: true });
  write(
    'train',
    made(train).flatMap(({ clean, corrected }) => [clean, corrected]),
  );
  for (const kind of ['wrong', 'right'])
    write(
      kind,
      made(test).map((one) => one[kind]),
    );
}

/** The score of the last turn of each trace: the share of episodes from there that were solved. */
const solved = (path) => rowsOf(path).map(({ steps }) => steps.at(-1).score);

function table(directory, names) {
  const mean = (values, weights = values.map(() => 1)) =>
    values.reduce((sum, value, i) => sum + value * weights[i], 0) /
    weights.reduce((sum, one) => sum + one, 0);
  const shown = (values) => {
    const drawn = resample(values.length, BOOTSTRAP, (weights) => mean(values, Array.from(weights)));
    const [low, high] = percentileInterval(drawn);
    return `${[mean(values), low, high]
      .map((one) => (100 * one).toFixed(1))
      .join(' (')
      .replace(/ \((\S+)$/, ' to $1')})`;
  };
  console.log('| | solved from a wrong turn on, % | from the right turn on, % |\n| --- | --- | --- |');
  for (const name of names) {
    const [wrong, right] = ['wrong', 'right'].map((kind) =>
      solved(`${directory}/${name}-${kind}/labels.jsonl`),
    );
    console.log(`| ${name} | ${shown(wrong)} | ${shown(right)} |`);
  }
}

const [mode, ...given] = process.argv.slice(2);
if (mode === 'traces') traces(...given);
else if (mode === 'table') table(given[0], given.slice(1));
else throw new Error('traces or table');
