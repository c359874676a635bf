/** Follows what goes on: the server sends the sections that changed and the numbers of the plots. */
import type { PlotData } from './data.js';
import { arrangeList } from './list.js';
import type { Plots } from './plots.js';

interface Update {
  readonly head?: string;
  /** Sections by id, as the server rendered them. */
  readonly sections: Readonly<Record<string, string>>;
  readonly plots: readonly PlotData[];
}

export function follow(address: string, plots: Plots): void {
  const source = new EventSource(address);
  source.addEventListener('update', (event) => {
    const { head, sections, plots: data } = JSON.parse((event as MessageEvent<string>).data) as Update;
    if (head !== undefined) replace(document.getElementById('head'), head);
    for (const [id, html] of Object.entries(sections)) {
      const place = document.querySelector(`[data-section="${CSS.escape(id)}"]`);
      // A section that appears has no place yet: the page is read again.
      if (!place) return location.reload();
      replace(place, html);
    }
    arrangeList();
    plots.update(data);
    plots.mount(document);
  });
}

/**
 * Replaces markup by newer one of the server that made the page, where every text in it was escaped. Opened, chosen and
 * zoomed parts stay so.
 */
function replace(place: Element | null, html: string): void {
  if (!place) return;
  const fresh = document.createElement('template');
  fresh.innerHTML = html;
  const kept = plotsIn(place);
  if (kept !== '' && kept === plotsIn(fresh.content)) {
    const hints = fresh.content.querySelectorAll('h3 .hint');
    for (const [i, hint] of [...place.querySelectorAll('h3 .hint')].entries())
      hint.textContent = hints[i]?.textContent ?? '';
    return;
  }
  const open = [...place.querySelectorAll('details')].map((each) => each.open);
  const checked = new Set(
    [...place.querySelectorAll<HTMLInputElement>('input:checked')].map(({ value }) => value),
  );
  for (const [i, each] of [...fresh.content.querySelectorAll('details')].entries())
    each.open = open[i] ?? each.open;
  for (const box of fresh.content.querySelectorAll<HTMLInputElement>('input[type="checkbox"]'))
    box.checked = checked.has(box.value);
  const typed = document.getElementById('filter');
  const box = fresh.content.querySelector('#filter');
  // The box itself stays, with its text and cursor.
  if (typed && box && place.contains(typed)) box.replaceWith(typed);
  place.replaceChildren(fresh.content);
}

const plotsIn = (root: ParentNode) =>
  [...root.querySelectorAll<HTMLElement>('[data-plot]')].map(({ dataset }) => dataset.plot).join('\n');
