// Verdicts of the judge of the package on its generator's text and on other text, whose lines are right or labelled.
//   node research/scripts/foreign-text.mjs [SHARED]    SHARED: a folder with data/svamp and data/gsm8k; default ../shared
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel } from '../../dist/api/model.js';
import { wordProblemRecords } from '../../dist/data/problems/records.js';
import { MISTAKES } from '../../dist/data/problems/solution.js';
import { NAMES, THINGS } from '../../dist/data/problems/words.js';
import { openDevice } from '../../dist/runtime/device.js';
import { judgeSolutions } from '../../dist/scoring/judge.js';

const SHOWN = 400;
const shared = process.argv[2] ?? '../shared';
const rows = (name) => readFileSync(join(shared, name), 'utf8').trim().split('\n').map(JSON.parse);

const solutionOf = ({ record: { problem, steps } }) => ({
  problem,
  steps: steps.map(({ text }) => text),
  labels: steps.map(({ label }) => label),
});
const allRight = (problem, steps) => ({ problem, steps, labels: steps.map(() => 1) });
const own = (options) =>
  [
    ...wordProblemRecords({
      seed: 1,
      samples: 12000,
      levels: [1],
      error_rate: 0.4,
      mistakes: MISTAKES,
      ...options,
    }),
  ]
    .filter(({ part }) => part === 'test')
    .map(solutionOf);

const test = own({});
const right = test.filter(({ labels }) => labels.every((label) => label === 1));
const changed = (change) => right.map(({ problem, steps }) => allRight(change(problem), steps.map(change)));
const any = (words) => new RegExp(`\\b(${words.join('|')})\\b`, 'g');

const SIGNS = { '*': '×', '/': '÷' };
const svamp = rows('data/svamp/test.jsonl').flatMap(({ Equation, Body, Question, Answer }) => {
  const [, left, sign, by] = /^\( (\S+) ([-+*/]) (\S+) \)$/.exec(Equation) ?? [];
  if (left === undefined) return [];
  const who = /[A-Z][a-z]+/.exec(Body)?.[0] ?? 'total';
  const line = `${who}: ${Number(left)} ${SIGNS[sign] ?? sign} ${Number(by)} = ${Answer}`;
  return [allRight(`${Body.replace(/\.?$/, '.')} ${Question}`, [line, `Answer: ${Answer}`])];
});
const gsm8k = rows('data/gsm8k/test.jsonl')
  .slice(0, 300)
  .map(({ question, answer }) =>
    allRight(
      question,
      answer
        .replace(/<<.*?>>/g, '')
        .split('\n')
        .filter((line) => !line.startsWith('####')),
    ),
  );

const sets = {
  'its own test problems': test,
  'held-out sentences': own({ templates: 'held_out', samples: 3000 }),
  'longer problems, level 2': own({ levels: [0, 1], samples: 3000 }),
  'longer problems, level 3': own({ levels: [0, 0, 1], samples: 3000 }),
  'other names': changed((text) => text.replaceAll(any(NAMES), 'Priya')),
  'other things': changed((text) => text.replaceAll(any(THINGS), 'laptops')),
  'sentences in reverse order': right.map(({ problem, steps }) =>
    allRight(
      problem
        .split(/(?<=[.?]) /)
        .reverse()
        .join(' '),
      steps,
    ),
  ),
  'numbers a hundred times as large': changed((text) => text.replaceAll(/\d+/g, (number) => `${number}00`)),
  'SVAMP, one operation': svamp,
  'GSM8K, 300 problems': gsm8k,
};

const device = openDevice('cpu', { threads: 1 });
const judge = await loadModel(device, 'word-problems-judge');
const WORDS = ['right', 'wrong', 'unsure', 'null'];
console.log(`| text | solutions | label | ${WORDS.join(' | ').replace('null', 'none')} |`);
console.log(`| --- | --- | --- | ${WORDS.map(() => '---').join(' | ')} |`);
for (const [name, all] of Object.entries(sets)) {
  const solutions = all.slice(0, SHOWN);
  const judged = await judgeSolutions(
    judge,
    solutions.map(({ problem, steps }) => ({ problem, steps })),
  );
  for (const label of [1, 0]) {
    const verdicts = judged.flatMap((steps, i) =>
      steps.filter((_, step) => solutions[i].labels[step] === label).map(({ verdict }) => String(verdict)),
    );
    if (verdicts.length === 0) continue;
    const counts = WORDS.map((word) => verdicts.filter((verdict) => verdict === word).length);
    console.log(`| ${name} | ${solutions.length} | ${label ? 'right' : 'wrong'} | ${counts.join(' | ')} |`);
  }
}
judge.dispose();
device.dispose();
