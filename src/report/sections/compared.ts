/** Results and configurations of several runs side by side. */

import { dotted } from '../../config/dotted.js';
import { needsOtherClass } from '../../eval/statistics/metrics.js';
import type { CollectedRun } from '../collect.js';
import { count, number, percent } from '../format.js';
import { type Html, html } from '../html.js';
import { isShare, nameOf } from '../names.js';

import type { Section } from './section.js';

/** Columns of the test line beside each other. */
const MAX_KEYS = 8;

export function comparedResults(runs: readonly CollectedRun[], names: readonly string[]): Section {
  const unseen = runs.some(({ report }) => report?.metrics_unseen !== undefined);
  const judged = runs.some(({ report }) => report !== undefined);
  // The column in front says it already where all test steps are unseen.
  const repeated = runs.every(
    ({ report }) =>
      report?.metrics_unseen === undefined || report.metrics_unseen.f1_macro === report.metrics.f1_macro,
  );
  const all = [...new Set(runs.flatMap(({ log }) => [...(log.phase('test')?.columns.keys() ?? [])]))].filter(
    (key) => !(repeated && judged && key === 'f1_macro'),
  );
  const keys = all.slice(0, MAX_KEYS);
  const cell = (key: string, value: number | undefined) =>
    html`<td class="n">${value === undefined ? '–' : isShare(key) ? percent(value) : number(value)}</td>`;
  const isTold = ({ report }: CollectedRun) => {
    const constant =
      (unseen ? report?.baselines_unseen : undefined)?.always_positive ?? report?.baselines.always_positive;
    return constant === undefined || !needsOtherClass('f1_macro', constant);
  };
  const interval = ({ report }: CollectedRun) => {
    const ends = (unseen ? report?.intervals_unseen : report?.intervals)?.metrics.f1_macro;
    return ends ? `${percent(ends[0])}–${percent(ends[1])}` : '';
  };
  const row = (run: CollectedRun, i: number): Html => {
    const of = unseen ? run.report?.metrics_unseen : run.report?.metrics;
    return html`<tr><th scope="row">${names[i]}</th><td>${run.status}</td><td class="n">${number(run.log.step)}</td>${judged && html`<td class="n"><b>${of && isTold(run) ? percent(of.f1_macro) : '–'}</b></td><td class="n">${isTold(run) && interval(run)}</td>`}${keys.map((key) => cell(key, run.log.last('test', key)))}</tr>`;
  };
  return {
    id: 'results',
    title: 'Results',
    body: html`<div class="scroll" tabindex="0" role="region" aria-label="Results"><table class="results runs"><thead><tr><th scope="col">Run</th><th scope="col">state</th><th scope="col" class="n">steps</th>${judged && html`<th scope="col" class="n">F1 macro${unseen && ', unseen'}, %</th><th scope="col" class="n">95 % interval</th>`}${keys.map((key) => html`<th scope="col" class="n">${nameOf(key)}${isShare(key) && ', %'}</th>`)}</tr></thead><tbody>${runs.map(row)}</tbody></table></div>
<p class="hint">An interval is over problems, for one run each; of other seeds it says nothing. Paired tests of two runs: <code>steptrain eval compare</code>.${all.length > MAX_KEYS && html` The ${count(all.length - MAX_KEYS, 'further metric')} of the test ${all.length - MAX_KEYS === 1 ? 'is' : 'are'} in the last line of each metrics.jsonl.`}</p>`,
    absent: '',
  };
}

/** More keys are shown when somebody asks: the methods differ. */
const FOLDED = 20;

export function comparedConfigurations(runs: readonly CollectedRun[], names: readonly string[]): Section {
  const flat = runs.map(
    ({ config }) => new Map(dotted(config).map(([key, value]) => [key, JSON.stringify(value)])),
  );
  const keys = [...new Set(flat.flatMap((own) => [...own.keys()]))].filter(
    (key) => key !== 'run.output_dir' && new Set(flat.map((own) => own.get(key))).size > 1,
  );
  const table = html`<div class="scroll" tabindex="0" role="region" aria-label="Configurations"><table><thead><tr><th scope="col">Key</th>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead><tbody>${keys.map((key) => html`<tr><th scope="row"><code>${key}</code></th>${flat.map((own) => html`<td>${own.get(key) ?? '–'}</td>`)}</tr>`)}</tbody></table></div>`;
  return {
    id: 'configuration',
    title: 'What the configurations differ in',
    body:
      keys.length > 0
        ? keys.length > FOLDED
          ? html`<details><summary>${keys.length} keys</summary>${table}</details>`
          : table
        : undefined,
    absent: 'The configurations are equal but for the directory.',
  };
}
