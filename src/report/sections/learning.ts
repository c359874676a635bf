/** Learning curves: a place for each plot, which the page's script draws, and the numbers for it. */
import type { PhaseGroup, Plot } from '../curves.js';
import { type Html, html } from '../html.js';
import { nameOf } from '../names.js';
import type { Section } from './section.js';

export function learning(groups: readonly PhaseGroup[]): Section {
  const shown = groups.filter(({ plots }) => plots.length > 0);
  return {
    id: 'learning',
    title: 'Learning curves',
    body:
      shown.length === 0
        ? undefined
        : html`<div class="controls"><label for="smoothing">Smoothing</label><input id="smoothing" type="range" min="0" max="0.98" step="0.02" value="0.6"><output id="smoothing-value" for="smoothing">0.60</output><span class="hint">Drag in a plot to zoom, double-click to see all; the buttons hide a line.</span></div>
<noscript><p class="warning">The curves are drawn by the page’s own script, which is switched off here; everything else is readable without it.</p></noscript>
${shown.map((each, i) => group(each, { isOpen: i === shown.length - 1, isOnly: shown.length === 1 }))}`,
    absent: 'metrics.jsonl has no line yet.',
  };
}

/** The last stage, which made the model, is open. A single stage is no warm-up. */
function group(
  { name, phases, plots }: PhaseGroup,
  { isOpen, isOnly }: { readonly isOpen: boolean; readonly isOnly: boolean },
): Html {
  const [major, minor] = [plots.filter(({ minor }) => !minor), plots.filter(({ minor }) => minor)];
  const title = isOnly ? name : nameOf(name);
  const steps = phases.length > 1 ? `${phases.length} rounds` : `${phases[0]?.steps ?? 0} steps`;
  return html`<details class="phase"${isOpen && html` open`}><summary><h3>${title} <span class="hint">${phases.length > 0 && `${title === name ? '' : `${name}, `}${steps}`}</span></h3></summary>
<div class="plots">${major.map(figure)}</div>
${minor.length > 0 && html`<details data-phase="${name}"><summary>${minor.length} more: ${minor.map((each) => each.title.toLowerCase()).join(', ')}</summary><div class="plots">${minor.map(figure)}</div></details>`}</details>`;
}

function figure({ id, title, about }: Plot): Html {
  return html`<figure class="plot-box"><figcaption><strong>${title}</strong> <span class="hint">${about}</span></figcaption><div class="plot-legend" data-legend="${id}"></div><div class="plot" data-plot="${id}"></div></figure>`;
}
