/**
 * Mismatched pairs of prompt and answer, from which KTO's reference point is estimated. Two answers to one problem are
 * neighbours of each other and would bias it, so every pair joins different problems.
 */
import { StepTrainError } from '../../../native/errors.js';

/**
 * For each item of a batch, another item whose answer follows its prompt: items are sorted by problem and rotated by
 * the number of the most frequent problem's items, which is a permutation as long as no problem has more than half of
 * the batch.
 *
 * @param problems the problem of each item
 * @throws StepTrainError for a batch with a single problem
 */
export function mismatch(problems: readonly number[]): number[] {
  const counts = new Map<number, number>();
  for (const problem of problems) counts.set(problem, (counts.get(problem) ?? 0) + 1);
  if (counts.size < 2) throw oneProblem(problems.length);
  const order = problems.map((_, i) => i);
  order.sort((a, b) => (problems[a] as number) - (problems[b] as number) || a - b);
  const shift = Math.max(...counts.values());
  const partner: number[] = [];
  for (const [at, item] of order.entries()) {
    // A problem with more than half of the items reaches itself again; it goes on to the next other problem.
    let next = (at + shift) % order.length;
    while (problems[order[next] as number] === problems[item]) next = (next + 1) % order.length;
    partner[item] = order[next] as number;
  }
  return partner;
}

/**
 * Batches in which two problems meet: one that has a single problem exchanges its last item (one of a single item takes one)
 * with the nearest batch that can spare an item of another.
 *
 * @throws StepTrainError where that is impossible
 */
export function mixProblems(
  batches: readonly (readonly number[])[],
  problemOf: (item: number) => number,
): number[][] {
  const mixed = batches.map((batch) => [...batch]);
  for (const [i, batch] of mixed.entries()) {
    const own = problemOf(batch[0] as number);
    if (batch.some((item) => problemOf(item) !== own)) continue;
    const alone = batch.length === 1;
    const donors = mixed.map((_, k) => k).filter((k) => k !== i);
    donors.sort((a, b) => Math.abs(a - i) - Math.abs(b - i));
    const found = donors
      .map((k) => ({ donor: mixed[k] as number[], at: spare(mixed[k] as number[], own, problemOf, alone) }))
      .find(({ at }) => at !== undefined);
    if (found?.at === undefined) throw oneProblem(batch.length);
    const { donor, at } = found;
    if (alone) batch.push(...donor.splice(at, 1));
    else [batch[batch.length - 1], donor[at]] = [donor[at] as number, batch.at(-1) as number];
  }
  return mixed;
}

/**
 * The index of an item that the batch can give away: it is of another problem than `own`, and the batch still has two problems
 * afterwards, with `own` in its place unless `taken`.
 */
function spare(
  batch: readonly number[],
  own: number,
  problemOf: (item: number) => number,
  taken: boolean,
): number | undefined {
  const at = batch.findIndex((item, i) => {
    const left = batch.filter((_, k) => k !== i).map(problemOf);
    return problemOf(item) !== own && new Set(taken ? left : [...left, own]).size > 1;
  });
  return at < 0 ? undefined : at;
}

function oneProblem(items: number): StepTrainError {
  return new StepTrainError(
    'E_DATA',
    `a batch of ${items} has answers to one problem alone, and KTO's reference point compares prompts with answers to other ` +
      'problems (with its own answer it would be the reward itself); use a larger batch_size and data of several problems',
  );
}
