/** Follows a run that goes on: the server sends the sections that changed and the numbers of the plots. */
import type { PlotData } from './data.js';
import type { Plots } from './plots.js';

interface Update {
  readonly head?: string;
  /** Sections by id, as the server rendered them. */
  readonly sections: Readonly<Record<string, string>>;
  readonly plots: readonly PlotData[];
}

export function followRun(address: string, plots: Plots): void {
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
    plots.update(data);
    plots.mount(document);
  });
}

/** The markup comes from the server that made the page, where every text in it was escaped. */
function replace(place: Element | null, html: string): void {
  if (!place) return;
  const open = [...place.querySelectorAll('details')].map((each) => each.open);
  place.innerHTML = html;
  for (const [i, each] of [...place.querySelectorAll('details')].entries()) each.open = open[i] ?? each.open;
}
