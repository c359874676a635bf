/** The candidate closest to `word`; undefined if none is close enough. */
export function nearestName(word: string, candidates: readonly string[]): string | undefined {
  const abbreviated = candidates.find((name) => initials(name) === word.toLowerCase());
  if (abbreviated) return abbreviated;
  const limit = Math.max(2, Math.floor(word.length / 3));
  let best: { readonly name: string; readonly distance: number } | undefined;
  for (const name of candidates) {
    const distance = editDistance(fold(word), fold(name));
    if (distance <= limit && distance < (best?.distance ?? Number.POSITIVE_INFINITY))
      best = { name, distance };
  }
  if (best?.distance === 1) return best.name;
  return beginning(word, candidates) ?? best?.name ?? candidates.find((name) => sharesWholeWord(word, name));
}

/** Edit distance with insertions, deletions, substitutions and swaps of neighbours. */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let cost = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, beforeLast[j - 2]! + 1);
      }
      row.push(cost);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length]!;
}

// learningRate and learning-rate are learning_rate.
function fold(name: string): string {
  return name.toLowerCase().replaceAll(/[-_]/g, '');
}

// `lr` for learning_rate.
function initials(name: string): string | undefined {
  return name.includes('_')
    ? name
        .split('_')
        .map((part) => part[0])
        .join('')
    : undefined;
}

// `out` for output, where no other name begins so.
function beginning(word: string, candidates: readonly string[]): string | undefined {
  const start = fold(word);
  const found = start.length < 3 ? [] : candidates.filter((name) => fold(name).startsWith(start));
  return found.length === 1 ? found[0] : undefined;
}

// `alpha` for lora_alpha, `epochs` for num_train_epochs.
function sharesWholeWord(word: string, name: string): boolean {
  return name.split('_').includes(word.toLowerCase());
}
