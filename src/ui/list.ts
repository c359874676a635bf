/** The list of runs: state and progress, result, a curve, time; grouped by the folder that they share, as those of a sweep. */
import { dirname } from 'node:path';
import { needsOtherClass } from '../eval/statistics/metrics.js';
import { grouped } from '../native/grouped.js';
import type { CollectedRun } from '../report/collect.js';
import { decimate } from '../report/decimate.js';
import { duration, number, percent } from '../report/format.js';
import { type Html, html } from '../report/html.js';
import { isShare, nameOf } from '../report/names.js';
import { sparkline } from '../report/svg/sparkline.js';
import { usualTop } from '../report/usual-top.js';

export interface ListedRun {
  /** Its path below the folder. */
  readonly name: string;
  readonly run: CollectedRun;
}

const SIGNS = { running: '●', finished: '✓', stopped: '‖' } as const;

const COLUMNS: readonly (readonly [title: string, key: string, isNumber: boolean])[] = [
  ['Run', 'name', false],
  ['method', 'method', false],
  ['state', 'state', false],
  ['result', 'result', true],
  ['curve', '', false],
  ['took', 'took', true],
  ['last line', 'changed', true],
];

/** Runs in no common folder come first, newest first; then a table for each folder with several. */
export function runList(runs: readonly ListedRun[], now = Date.now()): Html {
  const newest = [...runs].sort((a, b) => b.run.changed - a.run.changed);
  const folders = grouped(newest, ({ name }) => dirname(name));
  const isGroup = (folder: string, own: readonly ListedRun[]) => folder !== '.' && own.length > 1;
  const alone = newest.filter(({ name }) => {
    const folder = dirname(name);
    return !isGroup(folder, folders.get(folder) ?? []);
  });
  const groups = [...folders].filter(([folder, own]) => isGroup(folder, own));
  return html`<form action="/compare" method="get"><div class="controls"><label for="filter">Filter</label><input id="filter" type="search" placeholder="name, method or state" autocomplete="off"><span class="hint" id="filtered" role="status"></span><button type="submit">Compare the chosen runs</button></div>
${alone.length > 0 && table('Runs', alone, now)}
${groups.map(([folder, own]) => html`<details class="group" open><summary><b>${folder}</b> <span class="hint">${own.length} runs, ${states(own)}</span></summary>${table(folder, own, now)}</details>`)}</form>`;
}

function states(runs: readonly ListedRun[]): string {
  return (['running', 'finished', 'stopped'] as const)
    .map((status) => [runs.filter(({ run }) => run.status === status).length, status] as const)
    .filter(([count]) => count > 0)
    .map(([count, status]) => `${count} ${status}`)
    .join(', ');
}

function table(label: string, runs: readonly ListedRun[], now: number): Html {
  const titles = COLUMNS.map(([title, key, isNumber]) =>
    key === ''
      ? html`<th scope="col">${title}</th>`
      : html`<th scope="col"${isNumber && html` class="n"`}><button type="button" data-sort="${key}">${title}</button></th>`,
  );
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${label}"><table class="results list"><thead><tr><td></td>${titles}</tr></thead><tbody>${runs.map((each) => row(each, now, label))}</tbody></table></div>`;
}

/** @param folder above the run, which a heading names already */
function row({ name, run }: ListedRun, now: number, folder: string): Html {
  const method = String(run.config.method ?? '');
  const result = resultOf(run);
  const { worked: seconds } = run.times;
  const cell = (key: string, value: string | number, body: Html | string, classes = '') =>
    html`<td data-key="${key}" data-value="${value}"${classes !== '' && html` class="${classes}"`}>${body}</td>`;
  return html`<tr class="${run.status}" data-text="${`${name} ${method} ${run.status}`.toLowerCase()}"><td><input type="checkbox" name="run" value="${name}" aria-label="compare ${name}"></td><th scope="row" data-key="name" data-value="${name}"><a href="/run?name=${encodeURIComponent(name)}">${name.startsWith(`${folder}/`) ? name.slice(folder.length + 1) : name}</a></th>${cell('method', method, method)}${cell('state', run.status, state(run))}${cell('result', result?.value ?? '', result?.text ?? '', 'n')}<td>${curve(run)}</td>${cell('took', seconds, seconds > 0 ? duration(seconds) : '', 'n')}${cell('changed', run.changed, run.changed > 0 ? html`<time datetime="${new Date(run.changed).toISOString()}">${ago(now - run.changed)}</time>` : '', 'n')}</tr>`;
}

/** The status of a run and, until it has finished, its progress. */
function state(run: CollectedRun): Html {
  const { status, log, progress } = run;
  const phase = log.phases.at(-1);
  const sign = html`<span class="status ${status}"><span aria-hidden="true">${SIGNS[status]}</span> ${status}</span>`;
  if (status === 'finished' || !progress) return sign;
  const { stages, stage, steps } = progress;
  const name = stages[stage] ?? '';
  const done = phase?.name === name ? phase.steps : 0;
  const share = (stage + Math.min(1, done / Math.max(1, steps))) / Math.max(1, stages.length);
  const text = `${name} ${done}/${steps}${stages.length > 1 ? `, stage ${stage + 1} of ${stages.length}` : ''}`;
  return html`${sign}<span class="progress"><progress max="1" value="${share.toFixed(3)}" aria-label="progress of ${run.name}"></progress> <span class="hint">${text}</span></span>`;
}

/** Its main metric; before the end the last loss. */
function resultOf({
  log,
  report,
}: CollectedRun): { readonly value: number; readonly text: string } | undefined {
  const of = report?.metrics_unseen ?? report?.metrics;
  const constant =
    (report?.metrics_unseen && report.baselines_unseen)?.always_positive ?? report?.baselines.always_positive;
  if (of && of.n > 0 && constant && needsOtherClass('f1_macro', constant))
    return { value: of.accuracy, text: `accuracy ${percent(of.accuracy)} %, of one class` };
  if (of && of.n > 0) return { value: of.f1_macro, text: `F1 macro ${percent(of.f1_macro)} %` };
  const [first] = log.phase('test')?.columns ?? [];
  const value = first?.[1].value.at(-1);
  if (first && value !== undefined) {
    const [key] = first;
    return { value, text: `${nameOf(key)} ${isShare(key) ? `${percent(value)} %` : number(value)}` };
  }
  const phase = log.phases.at(-1);
  const loss = phase && log.last(phase.name, 'loss');
  return loss === undefined ? undefined : { value: loss, text: `loss ${number(loss)}` };
}

/** Points of a curve that is as small as a word. */
const POINTS = 60;

/** The loss of the last stage that logged one. */
function curve({ log }: CollectedRun): Html | string {
  const phase = log.phases.findLast(({ columns }) => (columns.get('loss')?.value.length ?? 0) > 1);
  const column = phase?.columns.get('loss');
  if (!phase || !column) return '';
  const top = usualTop(column.value) ?? Number.POSITIVE_INFINITY;
  const { y } = decimate(column.phaseStep, column.value, POINTS);
  return sparkline(
    y.map((loss) => Math.min(loss, top)),
    `loss of ${nameOf(phase.name)}, from ${number(y[0] as number)} to ${number(y.at(-1) as number)}`,
  );
}

function ago(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 60) return 'now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} days ago`;
}
