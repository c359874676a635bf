/** Shows entries of eval.json that no other section shows, as JSON. */
import { attempt } from '../../native/attempt.js';
import type { CollectedRun } from '../collect.js';
import { html } from '../html.js';
import { nameOf } from '../names.js';
import type { Section } from './section.js';

/** Shown by the head of the page, the results and the verdicts, where their kind of eval.json is known. */
const OF_VERDICTS = [
  'method',
  'unit',
  'metrics',
  'metrics_unseen',
  'baselines',
  'baselines_unseen',
  'intervals',
  'intervals_unseen',
  'differences',
  'warnings',
  'calibration',
  'threshold_sweep',
  'processbench',
  'errors',
  'likelihood',
  'words',
  'groups',
];
const OF_PROBLEMS = ['method', 'unit', 'metrics', 'models'];

/** Characters of an entry that are shown, and up to which it is indented: eval.json of any size and depth may lie in a run directory. */
const [MAX_TEXT, MAX_INDENTED] = [20_000, 8_000];

export function further({ report, solved, evaluation }: CollectedRun): Section {
  const shown = new Set(report ? OF_VERDICTS : solved ? OF_PROBLEMS : []);
  const rest = Object.entries(evaluation).filter(([key]) => !shown.has(key));
  return {
    id: 'further',
    title: 'Further results',
    body:
      rest.length > 0
        ? html`${rest.map(([key, value]) => html`<details class="nested"><summary>${nameOf(key)}</summary><pre class="code" tabindex="0">${asJson(value)}</pre></details>`)}`
        : undefined,
    absent: 'Everything that eval.json holds is shown above.',
  };
}

function asJson(value: unknown): string {
  return attempt(() => {
    const compact = JSON.stringify(value);
    const text = compact.length > MAX_INDENTED ? compact : JSON.stringify(value, null, 2);
    return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n… more in eval.json` : text;
  }, 'nested too deep to be shown');
}
