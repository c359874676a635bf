// Measures the shape of src/ and refuses what breaks it, with a sentence and a place for each break.
//   node scripts/architecture.mjs [ROOT]
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { circles } from './architecture/circles.mjs';
import { methodBranches } from './architecture/method-branches.mjs';
import { publicNames } from './architecture/public-names.mjs';
import { backArrows, topFiles } from './architecture/rooms.mjs';
import { scorers } from './architecture/scorers.mjs';
import { readSources } from './architecture/sources.mjs';
import { configurationRows, formerNames, vagueComments } from './architecture/wording.mjs';

/** The most of each that src/ may have. A number may only fall. */
const LIMITS = {
  circles: 0,
  scorers: 0,
  branches: 1,
  names: 60,
  former: 0,
  vague: 4,
  train: 17,
  cli: 30,
  eval: 20,
  generate: 11,
  back: 0,
  rows: 500,
};

const root = resolve(process.argv[2] ?? fileURLToPath(new URL('..', import.meta.url)));
const sources = readSources(root);

/** Each with the breaks that it found, as `place: sentence`. */
const measures = [
  ['circles', 'groups of files that import each other, types included', circles(sources)],
  ['scorers', 'interfaces for scoring beside the one', scorers(sources)],
  ['branches', "places outside src/methods/table.ts that branch on a method's name", methodBranches(sources)],
  ['names', 'names of the main entry', publicNames(sources)],
  ['former', 'mentions of former names', formerNames(sources)],
  [
    'vague',
    'comments that begin without their subject: "As", "Of", "What", "Where" and others',
    vagueComments(sources),
  ],
  ...['train', 'cli', 'eval', 'generate'].map((room) => [
    room,
    `files at the top of src/${room}`,
    topFiles(sources, room),
  ]),
  ['back', 'imports of a room above', backArrows(sources)],
  ['rows', 'rows of docs/reference/configuration.md', configurationRows(root)],
];

let broken = false;
for (const [name, what, found] of measures) {
  const limit = LIMITS[name];
  console.log(`${what}: ${found.length}, at most ${limit}`);
  if (found.length <= limit) continue;
  broken = true;
  // Of a long list the end says nothing more.
  for (const line of found.slice(0, 20)) console.error(`  ${line}`);
}
if (broken) {
  console.error(
    'architecture: src/ has more of these than it may; ARCHITECTURE.md, "Shape", says what to do',
  );
  process.exit(1);
}
