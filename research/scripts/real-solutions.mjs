// Solutions of real problems by real models, for the evidence on rewards (research/noisy-reward.md).
//   node research/scripts/real-solutions.mjs svamp test.jsonl problems.jsonl N     N problems by hash, worked out from their equations
//   node research/scripts/real-solutions.mjs gsm8k example_model_solutions.jsonl.gz solutions.jsonl    of GSM8K's four models, a row each
//   node research/scripts/real-solutions.mjs few labels.jsonl few.jsonl N [FROM]   the solutions of N problems by hash, without the answer's line
//   node research/scripts/real-solutions.mjs rows few.jsonl rows.jsonl steps       rows to learn from: steps up to the first wrong one
//   node research/scripts/real-solutions.mjs rows few.jsonl rows.jsonl outcome     rows to learn from: the last step, by the answer
//   node research/scripts/real-solutions.mjs place labels.jsonl scores.jsonl       a judge that knows the place of a step alone
//   node research/scripts/real-solutions.mjs length labels.jsonl scores.jsonl      its length alone
//   node research/scripts/real-solutions.mjs calculations labels.jsonl scores.jsonl    whether its calculations come out
//   node research/scripts/real-solutions.mjs processbench gsm8k.json.gz pb.json N  N of its solutions by hash
//   node research/scripts/real-solutions.mjs short gsm8k.jsonl short.jsonl CHARACTERS [FROM [TO]]    GSM8K's short problems by hash, from FROM to before TO
//   node research/scripts/real-solutions.mjs equations gsm8k.jsonl out.jsonl CHARACTERS 2-3 [FROM [TO]]    solutions as equations alone
//   node research/scripts/real-solutions.mjs subjects prm800k.jsonl.gz MATH,MATH out.jsonl SUBJECT FROM TO [N [EACH]]    solutions of MATH's problems of a subject (or all),
//                                                                         of which the hash is in a part of 0 to 1; of N problems at most, EACH of a problem by hash
//   node research/scripts/real-solutions.mjs origin NAME out.jsonl in.jsonl    its rows with the column `origin`
//   node research/scripts/real-solutions.mjs heldout RUN slips.jsonl others.jsonl    the wrong steps that a run of s3c holds out, by whether their equation holds
//   node research/scripts/real-solutions.mjs likelihood labels.jsonl MODEL scores.jsonl    how likely a model finds the steps
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { extractAnswer } from '../../dist/answers/extract.js';
import { loadProblems } from '../../dist/data/benchmarks/load.js';
import { calculationsIn } from '../../dist/data/equations/calculations.js';
import { equationsIn } from '../../dist/data/equations/equations.js';
import { loadRecords } from '../../dist/data/load.js';
import { loadModel, openDevice } from '../../dist/entries/index.js';
import { rocAuc } from '../../dist/eval/statistics/metrics.js';

const textOf = (path) => {
  const bytes = readFileSync(path);
  return (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
};
const rowsOf = (path) =>
  textOf(path)
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
const write = (path, rows) => writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
const hash = (text) => createHash('sha256').update(text).digest('hex');

/** `( ( 8.0 - 3.0 ) * 2.0 )` as lines, each with one operation. */
function workedOut(equation) {
  const lines = [];
  const innermost = /\(\s*(-?[\d.]+)\s*([-+*/])\s*(-?[\d.]+)\s*\)/;
  const by = { '+': (a, b) => a + b, '-': (a, b) => a - b, '*': (a, b) => a * b, '/': (a, b) => a / b };
  for (let text = equation, found = innermost.exec(text); found; found = innermost.exec(text)) {
    const [left, right] = [Number(found[1]), Number(found[3])];
    const result = by[found[2]](left, right);
    lines.push(`${left} ${found[2]} ${right} = ${result}`);
    text = text.replace(found[0], String(result));
  }
  return lines.join('\n');
}

async function svamp(from, to, count) {
  const rows = new Map(rowsOf(from).map((row) => [row.ID, row]));
  const { problems } = await loadProblems(from);
  const keyOf = ({ Body, Question }) => hash(Body + Question);
  const chosen = problems
    .map((problem) => ({ ...problem, key: keyOf(rows.get(problem.id)) }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .slice(0, Number(count));
  write(
    to,
    chosen.map(({ problem, answer, id }) => ({
      question: problem,
      answer: `${workedOut(rows.get(id).Equation)}\n#### ${Number(answer)}`,
    })),
  );
}

function gsm8k(from, to) {
  const models = ['6b_finetuning', '6b_verification', '175b_finetuning', '175b_verification'];
  const marked = (text) => text.replace(/\nA: /, '\n#### ');
  write(
    to,
    rowsOf(from).flatMap((row) =>
      models.map((model) => ({
        problem: row.question,
        answer: row.ground_truth.split('\nA: ')[1],
        solution: marked(row[model].solution),
        model,
      })),
    ),
  );
}

const answerOf = (steps) => extractAnswer(steps.map(({ text }) => text).join('\n'))?.answer ?? null;

/** A judge of steps was trained on none that only states the answer. The answer stays, for votes. */
function few(from, to, count, begin = '0') {
  const rows = rowsOf(from);
  const problems = [...new Set(rows.map(({ problem }) => problem))].sort((a, b) =>
    hash(a) < hash(b) ? -1 : 1,
  );
  const chosen = new Set(problems.slice(Number(begin), Number(begin) + Number(count)));
  const isAnswer = ({ text }) => text.startsWith('####');
  write(
    to,
    rows
      .filter(({ problem, steps }) => chosen.has(problem) && !steps.every(isAnswer))
      .map((row) => ({
        ...row,
        steps: row.steps.filter((step) => !isAnswer(step)),
        answered: answerOf(row.steps),
      })),
  );
}

/** Of a wrong solution without a wrong step the last one is wrong, as `noisy-reward.mjs` reads it. */
function rows(from, to, by) {
  const labelsOf = ({ steps, outcome }) => {
    const last = steps.length - 1;
    if (by === 'outcome') return steps.map((_, i) => (i === last ? outcome : null));
    const found = steps.some(({ label }) => label === 0);
    return steps.map(({ label }, i) => (i === last && !found ? outcome : label));
  };
  write(
    to,
    rowsOf(from).map((row) => {
      const labels = labelsOf(row);
      const steps = row.steps.map(({ text }, i) => ({ text, label: labels[i] }));
      return { problem: row.problem, gold_answer: row.gold_answer, steps };
    }),
  );
}

/** Judges that learned nothing. */
const ALONE = {
  place: (_, i) => 1 - i / 100,
  length: ({ text }) => 1 - text.length / 10_000,
  calculations: ({ text }) => Number(calculationsIn(text).every(({ holds }) => holds)),
};
const alone = (score) => (from, to) =>
  write(
    to,
    rowsOf(from).map(({ steps }) => ({ scores: steps.map(score) })),
  );

function processbench(from, to, count) {
  const rows = JSON.parse(textOf(from)).sort((a, b) => (hash(a.id) < hash(b.id) ? -1 : 1));
  writeFileSync(to, JSON.stringify(rows.slice(0, Number(count))));
}

/** Of which problem and solution have no more characters, without the annotations of calculators. */
function short(from, to, characters, begin = '0', end = 'Infinity') {
  const lengthOf = ({ question, answer }) => question.length + answer.replaceAll(/<<.*?>>/g, '').length;
  const kept = rowsOf(from).filter((row) => lengthOf(row) <= Number(characters));
  const byHash = kept.sort((a, b) => (hash(a.question) < hash(b.question) ? -1 : 1));
  write(to, byHash.slice(Number(begin), Number(end)));
}

/**
 * Problems of at most so many characters whose solutions are from LEAST-MOST equations, each right, and the last one is the answer: the
 * notes for calculators of GSM8K, or the lines of `svamp`. By hash of how a problem begins, without its figures: what SVAMP says of one
 * story in several ways stays together.
 */
function equations(from, to, characters, lines, begin = '0', end = 'Infinity') {
  const [least, most] = lines.split('-').map(Number);
  const keyOf = ({ problem }) => hash(problem.replaceAll(/[\d.]+/g, '').slice(0, 40));
  const kept = rowsOf(from).flatMap(({ question, answer: solution }) => {
    const [text, answer] = solution.replaceAll(',', '').split('\n#### ');
    const notes = [...text.matchAll(/<<([^<>]+)>>/g)].map(([, note]) => note);
    const worked = notes.length > 0 ? notes : text.split('\n').map((line) => line.replaceAll(' ', ''));
    const isRight = (line) =>
      /^[-+*/().\d]+=-?[\d.]+$/.test(line) && equationsIn(line).equations.every(({ holds }) => holds);
    const ends = Number(worked.at(-1)?.split('=')[1]) === Number(answer);
    if (question.length > Number(characters) || worked.length < least || worked.length > most) return [];
    if (!ends || !worked.every(isRight)) return [];
    return [{ problem: question, solution: `${worked.join('\n')}\nThe answer is: ${answer}`, answer }];
  });
  write(to, kept.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1)).slice(Number(begin), Number(end)));
}

/** At most 24 solutions of a problem (one has hundreds), or EACH by hash, of the first COUNT problems by hash; no problem is in two parts that do not overlap, whatever the subject. */
async function subjects(from, math, to, subject, begin, end, count = 'Infinity', each = undefined) {
  const subjectOf = new Map(
    math.split(',').flatMap((path) => rowsOf(path).map(({ problem, type }) => [problem, type])),
  );
  const place = (text) => Number.parseInt(hash(text).slice(0, 8), 16) / 2 ** 32;
  const kept = [];
  for await (const { problem, gold_answer, steps } of loadRecords(from).records) {
    const own = subjectOf.get(problem);
    const at = place(problem);
    if ((subject !== 'all' && own !== subject) || at < Number(begin) || at >= Number(end)) continue;
    kept.push({ problem, gold_answer, steps, subject: own });
  }
  kept.sort((a, b) => place(a.problem) - place(b.problem));
  const byProblem = new Map(kept.map(({ problem }) => [problem, []]));
  for (const row of kept) byProblem.get(row.problem).push(row);
  const drawn = [...byProblem.values()].slice(0, Number(count));
  const byHash = (own) =>
    own.toSorted((a, b) => place(JSON.stringify(a.steps)) - place(JSON.stringify(b.steps)));
  write(
    to,
    drawn.flatMap((own) => (each ? byHash(own).slice(0, Number(each)) : own.slice(0, 24))),
  );
}

function heldout(run, slips, others) {
  const wrong = ({ steps }) => steps.find(({ kind }) => kind === 'wrong');
  const records = rowsOf(`${run}/artefacts/samples.jsonl`).flatMap(({ part, record }) =>
    part === 'test' && wrong(record) ? [record] : [],
  );
  const isSlip = (record) => equationsIn(wrong(record).text).equations.some(({ holds }) => !holds);
  write(slips, records.filter(isSlip));
  write(
    others,
    records.filter((record) => !isSlip(record)),
  );
}

async function origin(name, to, from) {
  const rows = [];
  for await (const { provenance: _, ...record } of loadRecords(from).records)
    rows.push({ ...record, origin: name });
  write(to, rows);
}

/** Of each step the geometric mean of its tokens' probabilities (`scores`) and the least of them (`least`). */
async function likelihood(from, name, to) {
  const device = openDevice('cpu');
  const model = await loadModel(device, name, { dtype: 'bf16', quantize: 'none' });
  const tokenizer = await model.tokenizer();
  const found = [];
  const all = [];
  const rows = from.endsWith('.jsonl') ? rowsOf(from) : loadRecords(from).records;
  for await (const { problem, steps } of rows) {
    const pieces = [`${problem}\n`, ...steps.map(({ text }) => `${text}\n`)].map((text) =>
      tokenizer.encode(text),
    );
    const [{ logprobs }] = await model.score([pieces.flatMap((ids) => [...ids])]);
    let at = pieces[0].length - 1;
    const own = pieces.slice(1).map(({ length }) => {
      const part = [...logprobs.subarray(at, at + length)];
      at += length;
      return part;
    });
    all.push(...steps.map(({ label }) => label));
    const geometric = own.map((part) =>
      Math.exp(part.reduce((total, value) => total + value, 0) / part.length),
    );
    found.push({ scores: geometric, least: own.map((part) => Math.exp(Math.min(...part))) });
  }
  write(to, found);
  for (const column of ['scores', 'least']) {
    const labelled = found.flatMap((row) => row[column]).map((score, i) => ({ score, label: all[i] }));
    const known = labelled.filter(({ label }) => label !== null);
    const auc = rocAuc(
      known.map(({ score }) => score),
      known.map(({ label }) => label),
    );
    console.log(`${column}: AUC ${auc.toFixed(3)} over ${known.length} labelled steps`);
  }
  model.dispose();
  device.dispose();
}

const [command, ...given] = process.argv.slice(2);
const judges = Object.fromEntries(Object.entries(ALONE).map(([name, score]) => [name, alone(score)]));
const commands = {
  ...{ svamp, gsm8k, few, rows, processbench, short, equations, subjects, origin, heldout, likelihood },
  ...judges,
};
if (!commands[command]) throw new Error(`expected one of ${Object.keys(commands).join(', ')}`);
await commands[command](...given);
