/** The list of runs: filtered as somebody types, sorted by the column that is pressed. Both stay when the list is replaced. */

let sorted: { readonly key: string; readonly isDown: boolean } | undefined;

export function connectList(): void {
  if (!document.getElementById('filter')) return;
  document.addEventListener('input', ({ target }) => {
    if (target instanceof HTMLInputElement && target.id === 'filter') filter();
  });
  document.addEventListener('click', ({ target }) => {
    const key =
      target instanceof Element ? target.closest<HTMLElement>('button[data-sort]')?.dataset.sort : undefined;
    if (key === undefined) return;
    sorted = { key, isDown: sorted?.key === key ? !sorted.isDown : false };
    sort();
  });
}

/** Arranges the list again, after the server has sent a newer one. */
export function arrangeList(): void {
  filter();
  sort();
}

function filter(): void {
  const box = document.getElementById('filter');
  if (!(box instanceof HTMLInputElement)) return;
  const words = box.value
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  const rows = [...document.querySelectorAll<HTMLElement>('tr[data-text]')];
  for (const row of rows) row.hidden = !words.every((word) => (row.dataset.text ?? '').includes(word));
  for (const part of document.querySelectorAll<HTMLElement>('details.group'))
    part.hidden = part.querySelector('tr[data-text]:not([hidden])') === null;
  const status = document.getElementById('filtered');
  const shown = rows.filter(({ hidden }) => !hidden).length;
  if (status) status.textContent = words.length === 0 ? '' : `${shown} of ${rows.length} runs`;
}

function sort(): void {
  if (!sorted) return;
  const { key, isDown } = sorted;
  for (const body of document.querySelectorAll('table.list tbody')) {
    const sortedValue = (row: Element) =>
      row.querySelector<HTMLElement>(`[data-key="${key}"]`)?.dataset.value ?? '';
    const rows = [...body.children].sort(
      (a, b) => compared(sortedValue(a), sortedValue(b)) * (isDown ? -1 : 1),
    );
    body.replaceChildren(...rows);
  }
  for (const button of document.querySelectorAll<HTMLElement>('button[data-sort]'))
    button
      .closest('th')
      ?.setAttribute('aria-sort', button.dataset.sort !== key ? 'none' : isDown ? 'descending' : 'ascending');
}

/** Compares numbers by size and texts by letters; missing values come last. */
function compared(a: string, b: string): number {
  if (a === '' || b === '') return a === b ? 0 : a === '' ? 1 : -1;
  const [left, right] = [Number(a), Number(b)];
  if (!Number.isNaN(left) && !Number.isNaN(right)) return left - right;
  return a.localeCompare(b, 'en', { numeric: true });
}
