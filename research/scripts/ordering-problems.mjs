// A task that is no arithmetic: who is at a place of an order, of sentences about neighbours in it.
//
//   node research/scripts/ordering-problems.mjs DIRECTORY
//
// writes `base.jsonl`, of which a base is made, and `problems.jsonl`, of which a sweep trains and tests. No order of
// people is in both, nor twice in one. All words are words of the tokenizer of the word problems.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const NAMES = 'Amy Ann Bob Dan Eva Ida Jon Kim Leo Max Mia Sam Sue Tom Zoe'.split(' ');
const PEOPLE = [4, 5, 6];
const FILES = { 'base.jsonl': 60_000, 'problems.jsonl': 4_000 };

const [, , directory] = process.argv;
if (directory === undefined) {
  console.error('give a directory: node research/scripts/ordering-problems.mjs ordering');
  process.exit(1);
}
mkdirSync(directory, { recursive: true });
const random = mulberry32(1);
const seen = new Set();
for (const [name, count] of Object.entries(FILES)) {
  const rows = Array.from({ length: count }, () => JSON.stringify(problem()));
  const file = join(directory, name);
  writeFileSync(file, `${rows.join('\n')}\n`);
  console.log(`${file}: ${count} problems`);
}

function problem() {
  const order = newOrder();
  const sentences = order.slice(1).map((younger, i) => {
    const older = order[i];
    return random() < 0.5 ? `${older} is older than ${younger}.` : `${younger} is younger than ${older}.`;
  });
  const asked = 1 + Math.floor(random() * order.length);
  const lines = order.slice(0, asked).map((name, i) => `${i + 1}: ${name}`);
  return {
    problem: `${shuffled(sentences).join(' ')} Who is number ${asked} by age?`,
    solution: [...lines, `Answer: ${order[asked - 1]}`].join('\n'),
    answer: order[asked - 1],
    people: order.length,
  };
}

/** Oldest first; none is given twice. */
function newOrder() {
  for (;;) {
    const order = shuffled(NAMES).slice(0, PEOPLE[Math.floor(random() * PEOPLE.length)]);
    const key = order.join(' ');
    if (seen.has(key)) continue;
    seen.add(key);
    return order;
  }
}

function shuffled(items) {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
}

/** Numbers in [0, 1) that are the same everywhere for a seed: Tommy Ettinger's Mulberry32. */
function mulberry32(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), state | 1);
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61);
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
}
