// Whether a rehearsal went well: every part that was asked for left its lines, and nothing failed but what the machine lacks.
//   node scripts/device/rehearsed.mjs lines.jsonl PART …
import { readFileSync } from 'node:fs';

/** What a part leaves at least. */
const KINDS = {
  tests: 'test',
  models: 'test',
  suite: 'test',
  ours: 'bench',
  rival: 'bench',
  choice: 'choice',
  main: 'main',
  arrivals: 'arrivals',
};
/** Parts that need compute-sanitizer; the shell's code for a command that is not there. */
const SANITIZED = ['sanitize', 'racecheck-arrivals'];
const NOT_FOUND = 127;
/** What a rival says where a package or a GPU is not there: the emulated one is none for PyTorch. */
const ABSENT = [
  /^absent: No module named '(torch|liger_kernel|triton)'/,
  /^ModuleNotFoundError: No module named '(transformers|peft)'/,
  /Torch not compiled with CUDA enabled/,
  /Found no NVIDIA driver/,
];

const [path, ...parts] = process.argv.slice(2);
const lines = readFileSync(path, 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line));

function isWrong({ kind, name, code, state, error, side, same }) {
  if (kind === 'part') return code !== 0 && !(SANITIZED.includes(name) && code === NOT_FOUND);
  if (kind === 'arrivals') return same !== 'yes';
  if (side === 'rival') return error !== undefined && !ABSENT.some((known) => known.test(error));
  return state === 'failed' || error !== undefined;
}

const wrong = lines.filter(isWrong);
for (const part of parts.map((each) => each.split(':')[0]))
  if (KINDS[part] && !lines.some(({ kind }) => kind === KINDS[part]))
    wrong.push(`${part} left no line of kind ${KINDS[part]}`);
for (const line of wrong) console.error(line);
process.exit(wrong.length === 0 ? 0 : 1);
