/** Solutions of one problem as branches of their common prefix, which is read once for all of them. */
import type { ForwardSequence } from '../../sequences/forward.js';
import { branchedSequence } from '../../sequences/sequence.js';
import type { RewardItem } from './items.js';

/** An item whose rows are those of several. */
export interface SharedItem {
  readonly item: RewardItem;
  /** Indices of these items, in the order of their rows. */
  readonly of: readonly number[];
}

/**
 * The items of one problem in one sequence of at most `mostTokens`, where that has fewer tokens. Each row sees a branch
 * of the common prefix, so scores equal those of the items by themselves, bit for bit where kernels do not depend on
 * the layout.
 *
 * @param problemOf items with the same text share a prefix
 */
export function sharedItems(
  items: readonly RewardItem[],
  problemOf: (index: number) => string,
  mostTokens: number,
): SharedItem[] {
  const byProblem = new Map<string, number[]>();
  items.forEach(({ rows }, i) => {
    const key = rows.length > 0 ? `p${problemOf(i)}` : `${i}`;
    const others = byProblem.get(key);
    if (others) others.push(i);
    else byProblem.set(key, [i]);
  });
  const alone = (i: number) => ({ item: items[i] as RewardItem, of: [i] });
  const tokensOf = (of: readonly number[]) => of.reduce((sum, i) => sum + (items[i] as RewardItem).tokens, 0);
  return [...byProblem.values()].flatMap((indices) => {
    const found: SharedItem[] = [];
    let of: number[] = [];
    let last: SharedItem | undefined;
    const end = () => {
      if (last && last.item.tokens < tokensOf(last.of)) found.push(last);
      else found.push(...of.map(alone));
    };
    for (const i of indices) {
      const next = { item: branched([...of, i].map((each) => items[each] as RewardItem)), of: [...of, i] };
      if (of.length > 0 && next.item.tokens > mostTokens) {
        end();
        [of, last] = [[i], undefined];
      } else [of, last] = [next.of, next];
    }
    end();
    return found;
  });
}

/** The rows of several items, each with all that it sees, as branches of what that begins with. */
function branched(items: readonly RewardItem[]): RewardItem {
  const rows = items.flatMap((item) =>
    item.rows.map((row) => ({ row, seen: seenBy(item.sequences[row.sequence] as ForwardSequence, row.row) })),
  );
  const at = commonLength(rows.map(({ seen }) => seen));
  const places = [{ at, answers: rows.map(({ seen }) => seen.slice(at)) }];
  const { answers, ...sequence } = branchedSequence(rows[0]?.seen ?? [], places, [], { whole: true });
  return {
    sequences: [{ ...sequence, rowId: items[0]?.sequences[0]?.rowId ?? 0 }],
    rows: rows.map(({ row }, i) => ({ ...row, sequence: 0, row: answers[0]?.[i]?.end as number })),
    tokens: sequence.ids.length,
  };
}

/** The tokens up to that at `row`, without other branches. */
function seenBy({ ids, branch }: ForwardSequence, row: number): number[] {
  const own = branch?.[row];
  return ids.slice(0, row + 1).filter((_, i) => !branch?.[i] || branch[i] === own);
}

/** Length in tokens of the common prefix. */
function commonLength(all: readonly (readonly number[])[]): number {
  const [first = [], ...others] = all;
  const differs = first.findIndex((token, t) => others.some((ids) => ids[t] !== token));
  return differs < 0 ? first.length : differs;
}
