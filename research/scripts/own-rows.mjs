// Labelled rows to try a small judge with, in wordings that no generator of the package has.
//   node research/scripts/own-rows.mjs wordings 300 rows.jsonl [SEED]        bags, bus rides, recipes and money, written for this purpose
//   node research/scripts/own-rows.mjs gsm8k test.jsonl planted.jsonl [SEED] wrong results planted in the solutions of GSM8K
// In the layout `record`, so that each wrong step says its kind; `labels` as in docs/how-to/own-data.md would do.
import { readFileSync, writeFileSync } from 'node:fs';

/** Mulberry32: the same rows for the same seed, on every machine. */
function stream(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const whole = (from, to) => from + Math.floor(uniform() * (to - from + 1));
  return { uniform, whole, one: (list) => list[whole(0, list.length - 1)] };
}

const swapped = (value) => Number([...String(value)].reverse().join(''));

/** Wrong results of `left op right`, by kind; those that are the right one are left out. */
function mistakes({ left, op, right, result }, others, { one }) {
  const by = { '+': (a, b) => a + b, '-': (a, b) => a - b, '×': (a, b) => a * b, '÷': (a, b) => a / b };
  const wrong = {
    'slip of 1': result + one([-1, 1]),
    'slip of 10': result + one([-10, 10]),
    'digits swapped': Number.isInteger(result) && result > 9 ? swapped(result) : result,
    'another operation':
      op in by ? by[one(Object.keys(by).filter((other) => other !== op))](left, right) : result,
  };
  const found = Object.entries(wrong).filter(
    ([, value]) =>
      value !== result &&
      value >= 0 &&
      Number.isInteger(value * 100) &&
      (Number.isInteger(value) || !Number.isInteger(result)),
  );
  const other = others.find((value) => value !== left && value !== right && op in by);
  if (other !== undefined && by[op](left, other) !== result)
    found.push(['another quantity', by[op](left, other), other]);
  return found;
}

const NAMES = ['Paul', 'Yuki', 'Ngozi', 'Bjorn', 'Svetlana', 'Thabo', 'Priscilla', 'Raj'];

/** Each gives a problem, and its steps as left, op, right, result and the line that says so. */
const TOPICS = {
  bags({ whole, one }) {
    const [who, kept] = [one(NAMES), one(['marbles', 'walnuts', 'buttons'])];
    const [bags, each, away] = [whole(2, 9), whole(4, 30), whole(2, 7)];
    const all = bags * each;
    return {
      problem: `${who} fills ${bags} bags with ${each} ${kept} in every bag and hands ${away} ${kept} to a neighbour. How many ${kept} remain?`,
      steps: [
        [bags, '×', each, all, (l, r, x) => `All the bags together hold ${l} × ${r} = ${x} ${kept}.`],
        [all, '-', away, all - away, (l, r, x) => `After the gift ${l} - ${r} = ${x} ${kept} remain.`],
      ],
      given: [bags, each, away],
    };
  },
  bus({ whole, one }) {
    const [on, off, more] = [whole(15, 60), whole(2, 14), whole(3, 25)];
    const stop = one(['the harbour', 'the hospital', 'the old bridge']);
    return {
      problem: `A bus leaves the depot with ${on} passengers. At ${stop} ${off} passengers get off and ${more} climb aboard. With how many passengers does the bus drive on?`,
      steps: [
        [on, '-', off, on - off, (l, r, x) => `passengers after getting off: ${l}-${r}=${x}`],
        [on - off, '+', more, on - off + more, (l, r, x) => `passengers after boarding: ${l}+${r}=${x}`],
      ],
      given: [on, off, more],
    };
  },
  recipe({ whole, one }) {
    const [cook, grams, guests, pans] = [one(NAMES), whole(3, 25) * 10, whole(2, 12), whole(2, 6)];
    const flour = grams * guests;
    return {
      problem: `A pancake recipe asks for ${grams} grams of flour per guest. ${cook} cooks for ${guests} guests and splits the flour evenly over ${grams % pans === 0 ? pans : 2} bowls. How much flour goes into a bowl?`,
      steps: [
        [grams, '×', guests, flour, (l, r, x) => `Flour needed: ${l} g * ${r} = ${x} g`],
        [
          flour,
          '÷',
          grams % pans === 0 ? pans : 2,
          flour / (grams % pans === 0 ? pans : 2),
          (l, r, x) => `Flour per bowl: ${l} g / ${r} = ${x} g`,
        ],
      ],
      given: [grams, guests, grams % pans === 0 ? pans : 2],
    };
  },
  money({ whole, one }) {
    const who = one(NAMES);
    const [purse, price, second] = [
      whole(40, 90),
      whole(5, 39) + one([0, 0.5, 0.25, 0.75]),
      whole(1, 9) + one([0, 0.5]),
    ];
    const rest = purse - price;
    const money = (value) => (Number.isInteger(value) ? `$${value}` : `$${value.toFixed(2)}`);
    return {
      problem: `${who} takes ${money(purse)} to the bookshop, pays ${money(price)} for a novel and later finds ${money(second)} on the pavement. How much money does ${who} own in the end?`,
      steps: [
        [
          purse,
          '-',
          price,
          rest,
          (l, r, x) => `Having paid for the novel, ${who} still has ${money(l)} - ${money(r)} = ${money(x)}`,
        ],
        [
          rest,
          '+',
          second,
          rest + second,
          (l, r, x) =>
            `With the money from the pavement that becomes ${money(l)} + ${money(r)} = ${money(x)}`,
        ],
      ],
      given: [purse, price, second],
    };
  },
};

/** Each step wrong in three cases of ten; what follows goes on from the wrong result, and is right if it is right of that. */
function wordingRow(draw) {
  const topic = draw.one(Object.keys(TOPICS));
  const { problem, steps, given } = TOPICS[topic](draw);
  const row = { topic, problem, steps: [], labels: [], errors: [] };
  const changed = new Map();
  for (const [from, op, right, , text] of steps) {
    const left = changed.get(from) ?? from;
    const by = { '+': (a, b) => a + b, '-': (a, b) => a - b, '×': (a, b) => a * b, '÷': (a, b) => a / b };
    const result = by[op](left, right);
    if (result < 0 || !Number.isInteger(result * 100)) break;
    const possible = draw.uniform() < 0.3 ? mistakes({ left, op, right, result }, given, draw) : [];
    const [kind, wrong, other] = possible.length > 0 ? draw.one(possible) : [];
    const shown = wrong ?? result;
    row.steps.push(text(left, other ?? right, shown));
    row.labels.push(kind === undefined ? 1 : 0);
    row.errors.push(kind ?? null);
    changed.set(by[op](from, right), shown);
  }
  return row;
}

const EQUATION = /<<(\d+(?:\.\d+)?)([-+*/])(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)>>(\d[\d,]*(?:\.\d+)?)/;

/** A solution up to a wrong result, in half of the rows; else a right solution. */
function plantedRow({ question, answer }, draw) {
  const lines = answer.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('####'));
  const plain = lines.map((line) => line.replace(/<<.*?>>/g, ''));
  const row = { problem: question, steps: plain, labels: plain.map(() => 1), errors: plain.map(() => null) };
  const places = lines.flatMap((line, i) => (EQUATION.test(line) ? [i] : []));
  if (places.length === 0 || draw.uniform() < 0.4) return row;
  const at = draw.one(places);
  const [whole, left, sign, right, result, told] = EQUATION.exec(lines[at]);
  const op = { '*': '×', '/': '÷' }[sign] ?? sign;
  const numbers = (question.match(/\d+(\.\d+)?/g) ?? []).map(Number);
  const possible = mistakes(
    { left: Number(left), op, right: Number(right), result: Number(result) },
    numbers,
    draw,
  );
  if (possible.length === 0 || Number(told.replaceAll(',', '')) !== Number(result)) return row;
  const [kind, wrong, other] = draw.one(possible);
  let line = lines[at].replace(whole, `\u0000${told.includes(',') ? wrong.toLocaleString('en') : wrong}`);
  if (other !== undefined) {
    const [before, after] = line.split('\u0000');
    const place = before.lastIndexOf(right);
    if (place < 0) return row;
    line = `${before.slice(0, place)}${other}${before.slice(place + right.length)}\u0000${after}`;
  }
  const text = line.replace('\u0000', '').replace(/<<.*?>>/g, '');
  return {
    problem: question,
    steps: [...plain.slice(0, at), text],
    labels: [...plain.slice(0, at).map(() => 1), 0],
    errors: [...plain.slice(0, at).map(() => null), kind],
  };
}

const [command, first, file, seed = '1'] = process.argv.slice(2);
const draw = stream(Number(seed));
const recordOf = ({ topic, problem, steps, labels, errors }) => ({
  problem,
  steps: steps.map((text, i) => ({ text, label: labels[i], ...(errors[i] ? { error: errors[i] } : {}) })),
  ...(topic ? { group: topic } : {}),
});
const write = (rows) => writeFileSync(file, rows.map((row) => `${JSON.stringify(recordOf(row))}\n`).join(''));
if (command === 'wordings' && file) write(Array.from({ length: Number(first) }, () => wordingRow(draw)));
else if (command === 'gsm8k' && file)
  write(
    readFileSync(first, 'utf8')
      .trim()
      .split('\n')
      .map((line) => plantedRow(JSON.parse(line), draw)),
  );
else console.error('expected: wordings ROWS FILE [SEED], or gsm8k TEST.jsonl FILE [SEED]');
