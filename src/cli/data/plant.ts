// `steptrain data plant`: worked solutions with planted errors, as records.

import { loadProblems } from '../../data/benchmarks/load.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import { loadRecords } from '../../data/load.js';
import { likenessTo, type ProblemKey, problemKey } from '../../data/overlap.js';
import { PLANTED_KINDS, type PlantedKind } from '../../data/planted/kinds.js';
import { plantedRecord } from '../../data/planted/plant.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { exactText } from '../../files/exact-json.js';
import { plural } from '../../native/shown.js';
import { PhiloxStream, shuffled } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import { resolveData } from '../../run/paths.js';
import { UsageError } from '../line/error.js';
import { checkNewFile } from '../line/usage.js';

export interface PlantArguments {
  readonly from: string;
  readonly to: string;
  readonly kinds: string | undefined;
  readonly wrong: number;
  readonly 'max-samples': number | undefined;
  readonly apart: readonly string[] | undefined;
  readonly seed: number;
}

/** Domain of the order in which problems are taken. */
const ORDER = 0x706c6f72;

/**
 * Writes a record for each problem of `from` into a new file.
 *
 * @returns lines on its contents
 * @throws UsageError for options and an existing file; DataError for files that cannot be read
 */
export async function plantErrors(args: PlantArguments): Promise<string[]> {
  const { to, wrong, seed, 'max-samples': limit } = args;
  checkNewFile(to, '.jsonl');
  if (!(wrong >= 0 && wrong <= 1))
    throw new UsageError(`--wrong expects a share from 0 to 1, found ${wrong}`);
  const kinds = kindWeights(args.kinds);
  const { problems } = await loadProblems(await resolveData(args.from, 'train', () => '<from>'));
  const keys = await apartKeys(args.apart ?? []);
  const { own, left } = separate(problems, keys);
  const order = shuffled(new PhiloxStream(seed, ORDER, 0), [...own.keys()]);
  const records: StepRecord[] = [];
  let unfit = 0;
  for (const index of order) {
    if (records.length === limit) break;
    const record = plantedRecord(own[index] as Problem, index, { seed, wrong, kinds });
    if (record) records.push(record);
    else unfit++;
  }
  if (records.length === 0)
    throw new UsageError(
      `no error fits into a solution of ${args.from}; expected problems with worked solutions of several lines, such as GSM8K's`,
    );
  await writeFileAtomically(
    to,
    records.map((record) => Buffer.from(`${exactText(record)}\n`)),
  );
  return [
    ...described(records),
    ...(unfit > 0 ? [`${plural(unfit, 'solution')} left out: too short, or no kind of error fits`] : []),
    ...((args.apart ?? []).length > 0
      ? [
          `${plural(left, 'problem')} left out that are also in ${(args.apart ?? []).join(', ')}, word for word or nearly`,
        ]
      : []),
    `wrote ${to}`,
  ];
}

/** `slip=1,operand=2`, or names alone. */
function kindWeights(text: string | undefined): Partial<Record<PlantedKind, number>> {
  if (text === undefined) return {};
  return Object.fromEntries(
    text.split(',').map((each) => {
      const [name = '', share = '1'] = each.split('=').map((part) => part.trim());
      const weight = Number(share);
      if (!PLANTED_KINDS.includes(name as PlantedKind))
        throw new UsageError(
          `--kinds: there is no kind ${name}; expected some of ${PLANTED_KINDS.join(', ')}`,
        );
      if (!(weight > 0))
        throw new UsageError(`--kinds: the share of ${name} is ${share}; expected a number above 0`);
      return [name, weight];
    }),
  );
}

/** Problems of other files, of any layout of problems or solutions. */
async function apartKeys(paths: readonly string[]): Promise<ProblemKey[]> {
  const keys: ProblemKey[] = [];
  for (const path of paths) {
    const found = await resolveData(path, 'test', () => '--apart');
    for await (const { problem } of loadRecords(found).records) keys.push(problemKey(problem));
  }
  return keys;
}

/** Problems without repetitions, and without those of the other files. */
function separate(problems: readonly Problem[], keys: readonly ProblemKey[]) {
  const seen = new Set<number>();
  const likeness = likenessTo(keys);
  const own = problems.filter(({ problem }) => {
    const key = problemKey(problem);
    if (seen.has(key.hash)) return false;
    seen.add(key.hash);
    return likeness(key) === undefined;
  });
  return { own, left: seen.size - own.length };
}

function described(records: readonly StepRecord[]): string[] {
  const kinds = new Map<string, number>();
  let [labelled, wrong] = [0, 0];
  for (const { steps } of records)
    for (const { label, error } of steps) {
      if (label !== null) labelled++;
      if (label !== 0) continue;
      wrong++;
      kinds.set(error as string, (kinds.get(error as string) ?? 0) + 1);
    }
  const rows = [...kinds].sort((a, b) => b[1] - a[1]).map(([kind, n]) => `${kind} ${n}`);
  return [
    `${plural(records.length, 'solution')}, ${wrong} with an error${wrong > 0 ? `: ${rows.join(', ')}` : ''}`,
    `${plural(labelled, 'labelled step')}, ${((100 * wrong) / labelled).toFixed(1)} % wrong`,
  ];
}
