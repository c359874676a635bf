// The grader beside Math-Verify: gold answers rewritten in ways that keep or change their value, and pairs that other graders'
// tests and a published evaluation have judged.
//
//   python3 -m venv venv && venv/bin/pip install math-verify
//   node scripts/answers-beside-math-verify.mjs --data DIRECTORY --python venv/bin/python [--every 1] [--cases out.jsonl]
//
// DIRECTORY holds math/math500.jsonl, gsm8k/test.jsonl, gsm8k/example_model_solutions.jsonl.gz and answer-equivalence.jsonl.
// `--pairs N` takes N of all pairs, evenly. Each distinct answer is rewritten once; `--every N` takes each N-th of them, and of the sampled solutions. It runs on `dist/` and prints tables in Markdown; --cases writes every pair with both verdicts.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { grade } from '../dist/answers/grade.js';
import { REPLIES, REWRITINGS_IN_PROSE, rewritten } from './answers-rewritten.mjs';

const { values: options } = parseArgs({
  options: {
    data: { type: 'string' },
    python: { type: 'string', default: 'python3' },
    every: { type: 'string', default: '1' },
    cases: { type: 'string' },
    pairs: { type: 'string' },
  },
});
if (options.data === undefined || !existsSync(options.data)) {
  console.error('give the directory of the data: --data DIRECTORY');
  process.exit(1);
}

/** Kinds of pairs on which this grader may differ from what others say of them; research/answers.md says why. */
const DECIDED = new Set(["other graders' tests"]);
const kindOf = ({ set, rewriting }) => (rewriting ? `${set}: ${rewriting}` : set);

const every = Number(options.every);
const all = [...rewrittenMath(), ...laidOut(), ...rewrittenGsm8k(), ...judgedPairs(), ...judgedSolutions()];
const wanted = Math.min(Number(options.pairs ?? all.length), all.length);
const cases = Array.from({ length: wanted }, (_, i) => all[Math.floor((i * all.length) / wanted)]);
for (const each of cases) each.ours = grade(each.text, each.gold).correct;
const theirs = await mathVerify(cases);
for (const [i, each] of cases.entries()) each.theirs = theirs.verdicts[i];
if (options.cases) writeFileSync(options.cases, cases.map((each) => `${JSON.stringify(each)}\n`).join(''));
console.log(
  `Math-Verify ${theirs.version}, SymPy ${theirs.sympy}, Python ${theirs.python}, Node ${process.version}\n`,
);
console.log(table(cases, ({ set }) => set));
const byRewriting = groupBy(
  cases.filter(({ rewriting }) => rewriting),
  ({ set, rewriting, equal }) => `${set}, ${equal ? 'equal' : 'other'}: ${rewriting}`,
);
const missed = [...byRewriting].filter(([, group]) =>
  group.some(({ equal, ours, theirs }) => ours !== equal || theirs !== equal),
);
console.log(
  `${byRewriting.size} rewritings; both graders are always right on ${byRewriting.size - missed.length}:\n`,
);
console.log(
  table(
    missed.flatMap(([, group]) => group),
    ({ set, rewriting }) => `${set}: ${rewriting}`,
  ),
);

const undecided = cases.filter((each) => each.ours !== each.equal && !DECIDED.has(kindOf(each)));
for (const { set, rewriting, gold, text, equal } of undecided)
  console.log(
    `undecided: ${set}${rewriting ? `, ${rewriting}` : ''}: ${JSON.stringify({ gold, text, equal })}`,
  );
const differing = groupBy(
  cases.filter(({ ours, theirs }) => ours !== theirs),
  kindOf,
);
console.log(`${[...differing.values()].flat().length} of ${cases.length} pairs are judged differently`);
process.exitCode = undecided.length === 0 ? 0 : 1;

function* rewrittenMath() {
  for (const answer of distinct(rows('math/math500.jsonl'), (row) => row.answer))
    for (const { name, equal, text } of rewritten(answer))
      yield {
        set: 'MATH-500',
        rewriting: name,
        equal,
        gold: `$${answer}$`,
        text: `The result is $\\boxed{${text}}$.`,
      };
}

/** Replies in Markdown: with the answer, and with that of another problem. */
function* laidOut() {
  const answers = distinct(rows('math/math500.jsonl'), (row) => row.answer);
  for (const [i, answer] of answers.entries())
    for (const [k, [name, reply]] of REPLIES.entries()) {
      if ((i + k) % 3 !== 0) continue;
      const gold = `$${answer}$`;
      yield { set: 'Markdown', rewriting: name, equal: true, gold, text: reply(answer) };
      const other = /^\d+$/.test(answer) ? String(BigInt(answer) + 1n) : undefined;
      if (other) yield { set: 'Markdown', rewriting: name, equal: false, gold, text: reply(other) };
    }
}

function* rewrittenGsm8k() {
  const golds = distinct(rows('gsm8k/test.jsonl'), ({ answer }) =>
    answer.split('####')[1].trim().replaceAll(',', ''),
  );
  for (const gold of golds)
    for (const [name, equal, rewrite] of REWRITINGS_IN_PROSE) {
      // Nothing times or under 0 is another number.
      const text = gold === '0' && !equal ? undefined : rewrite(Number(gold));
      if (text !== undefined) yield { set: 'GSM8K', rewriting: name, equal, gold, text };
    }
}

function distinct(rows, answerOf) {
  return [...new Set(rows.map(answerOf))].filter((_, i) => i % every === 0);
}

/** What the tests of graders assert, in English and for any answer. */
function* judgedPairs() {
  for (const { got, expected, equal, kind, options: wanted } of rows('answer-equivalence.jsonl'))
    if (kind !== 'completion-vs-solution reward' && wanted?.language === undefined) {
      // Where their tests compare two formulas, and not texts that hold them, the signs around them are left out.
      const text = (answer) =>
        kind === 'equal' && !/^\$.*\$$/.test(answer) ? `$${answer}$` : String(answer);
      yield { set: "other graders' tests", equal, gold: text(expected), text: text(got) };
    }
}

/** Sampled solutions with the published verdict. */
function* judgedSolutions() {
  const solved = rows('gsm8k/example_model_solutions.jsonl.gz').filter((_, i) => i % every === 0);
  for (const { ground_truth, question: _, ...models } of solved)
    for (const { is_correct, solution } of Object.values(models))
      yield {
        set: 'GSM8K, sampled solutions',
        equal: is_correct,
        gold: ground_truth.split('A:').at(-1).trim(),
        // The calculator's notes would be read as the answer.
        text: solution.replace(/<<[^<>]*>>/g, '').replace(/^A:/m, 'The answer is'),
      };
}

function rows(path) {
  const bytes = readFileSync(join(options.data, path));
  const text = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

async function mathVerify(pairs) {
  const script = join(dirname(fileURLToPath(import.meta.url)), 'math-verify.py');
  const child = spawn(options.python, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
  const parts = [];
  child.stdout.on('data', (part) => parts.push(part));
  const ended = new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) =>
      code === 0 ? resolve() : reject(new Error(`${options.python} ended with ${code}`)),
    );
  });
  child.stdin.end(JSON.stringify(pairs.map(({ gold, text }) => [gold, text])));
  await ended;
  return JSON.parse(Buffer.concat(parts).toString());
}

/** Pairs by `keyOf`: how many are equal, how often both agree, and the errors of each. */
function table(pairs, keyOf) {
  const groups = groupBy(pairs, keyOf);
  const count = (group, test) => group.filter(test).length;
  const lines = [...groups].map(([key, group]) => {
    const errors = (who) => [
      count(group, (each) => each[who] && !each.equal),
      count(group, (each) => !each[who] && each.equal),
    ];
    const equal = count(group, (each) => each.equal);
    const same = count(group, (each) => each.ours === each.theirs);
    const cells = [
      group.length,
      equal,
      `${((100 * same) / group.length).toFixed(1)} %`,
      ...errors('ours'),
      ...errors('theirs'),
    ];
    return `| ${[key, ...cells].join(' | ')} |`;
  });
  const head =
    '| pairs | number | equal | agree | false accepts | false refusals | Math-Verify: false accepts | false refusals |';
  return `${head}\n| --- |${' --- |'.repeat(7)}\n${lines.join('\n')}\n`;
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (groups.has(key)) groups.get(key).push(item);
    else groups.set(key, [item]);
  }
  return groups;
}
