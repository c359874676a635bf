/** The head of a page: the run, its state, and its results in a few numbers. */
import type { EvalReport, VerdictReport } from '../../eval/reports/eval-report.js';
import { judgeName } from '../../eval/reports/likelihood-report.js';
import { evalTable } from '../../eval/reports/report-table.js';
import { needsOtherClass } from '../../eval/statistics/metrics.js';
import { type CollectedRun, configValue } from '../collect.js';
import { count, duration, number, percent, points } from '../format.js';
import { type Content, type Html, html } from '../html.js';
import { isShare, nameOf } from '../names.js';
import { pausesOf } from './resources.js';

const STATUS = {
  running: ['●', 'running'],
  finished: ['✓', 'finished'],
  stopped: ['‖', 'stopped before its end'],
} as const;

export function summary(run: CollectedRun): Html {
  const [sign, word] = STATUS[run.status];
  const method = String(configValue(run, 'method') ?? 'a run');
  const base = configValue(run, 'model.base');
  const stacked = configValue(run, 'model.adapter_mode') === 'stack';
  const { worked, paused } = run.times;
  const facts: readonly (readonly [string, Content])[] = [
    ['Method', text(configValue(run, `${method}.algorithm`)) ?? method],
    ['Judges by', run.report?.words ? judgeName(run.report) : undefined],
    ['Base', typeof base === 'string' ? base : 'new weights'],
    [stacked ? 'Stacked on' : 'Continues', text(configValue(run, 'model.adapter'))],
    ['Data', dataOf(run)],
    ['Seed', text(configValue(run, 'run.seed'))],
    ['Device', run.memory?.device ?? text(configValue(run, 'run.device'))],
    ['Steps', number(run.log.step)],
    ['Tokens', tokensOf(run)],
    ['Time', worked > 0 ? duration(worked) : undefined],
    ['Paused', paused.seconds >= 1 ? pausesOf(paused) : undefined],
    [
      'Saved',
      run.products.length > 0
        ? run.products.map((name) => name.replace(/\.safetensors$/, '')).join(', ')
        : undefined,
    ],
  ];
  return html`<p class="status ${run.status}"><span aria-hidden="true">${sign}</span> ${word}</p>
${readings(run).map((sentence) => html`<p class="reading">${sentence}</p>`)}
<dl class="facts">${facts.map(([name, value]) => value !== undefined && value !== '' && html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
<div class="tiles">${tiles(run)}</div>
${(run.report?.warnings ?? []).map((sentence) => html`<p class="warning"><strong>Warning</strong> ${sentence}</p>`)}
${run.damaged.map((sentence) => html`<p class="warning"><strong>Damaged</strong> ${sentence}</p>`)}`;
}

/** Sentences that sum up the results, before their numbers. */
function readings({ report }: CollectedRun): readonly string[] {
  return report && report.metrics.n > 0 ? evalTable(report).readings : [];
}

interface Tile {
  readonly name: string;
  readonly value: string;
  readonly unit?: string;
  readonly note?: string | undefined;
}

function tiles(run: CollectedRun): Html[] {
  const { report } = run;
  const found =
    report && report.metrics.n > 0
      ? [...verdictTiles(report.words ?? report), ...(report.words ? keptTile(report) : [])]
      : testTiles(run);
  return found.map(
    ({ name, value, unit, note }) =>
      html`<div class="tile"><div class="name">${name}</div><div class="value">${value}${unit !== undefined && html`<span class="unit">${unit}</span>`}</div>${note !== undefined && html`<div class="note">${note}</div>`}</div>`,
  );
}

/** F1 macro of the judge that is kept, where it goes by more than verdicts. */
function keptTile(report: EvalReport): Tile[] {
  const { f1_macro } = report.metrics_unseen ?? report.metrics;
  const { always_positive } =
    (report.metrics_unseen ? report.baselines_unseen : undefined) ?? report.baselines;
  if (always_positive && needsOtherClass('f1_macro', always_positive)) return [];
  const note = 'the judge that is kept';
  return [{ name: `F1 macro by ${judgeName(report)}`, value: percent(f1_macro), unit: '%', note }];
}

/** The metrics of the verdicts that training changed. */
function verdictTiles(report: VerdictReport): Tile[] {
  const unseen = report.metrics_unseen !== undefined && report.metrics_unseen.n > 0;
  const of = unseen ? (report.metrics_unseen as typeof report.metrics) : report.metrics;
  const intervals = unseen ? report.intervals_unseen : report.intervals;
  const within = (key: keyof NonNullable<typeof intervals>['metrics']) => {
    const ends = intervals?.metrics[key];
    return ends ? `95 % interval ${percent(ends[0])}–${percent(ends[1])}` : undefined;
  };
  const unit = report.unit ?? 'steps';
  const what = `${of.n.toLocaleString('en-US')} ${unseen ? `${unit} whose text training never had` : unit}`;
  const { always_positive } = (unseen ? report.baselines_unseen : undefined) ?? report.baselines;
  const isTold = (key: string) => !always_positive || !needsOtherClass(key, always_positive);
  const tile = (key: 'f1_macro' | 'auc' | 'acc_pos' | 'acc_neg'): Tile[] => {
    const value = of[key];
    return value === undefined || !isTold(key)
      ? []
      : [{ name: nameOf(key), value: percent(value), unit: '%', note: within(key) }];
  };
  const others = report.differences?.to ?? {};
  // The model that training began with, or its rival; "base" often writes no verdict at all.
  const to = ['words', 'sft', 'before', ...Object.keys(others)].find((name) => Object.hasOwn(others, name));
  const difference = to === undefined ? undefined : others[to];
  const before = to === undefined ? undefined : (unseen ? report.baselines_unseen : report.baselines)?.[to];
  const than: Tile[] =
    difference && to !== undefined && isTold('f1_macro')
      ? [
          {
            name: `F1 macro against ${nameOf(to)}`,
            value: points(difference.difference),
            unit: 'points',
            note: `${points(difference.interval[0])} to ${points(difference.interval[1])}${before ? `; ${nameOf(to)} has ${percent(before.f1_macro)} %` : ''}`,
          },
        ]
      : [];
  const [main, ...rest] = [...tile('f1_macro'), ...tile('auc'), ...tile('acc_pos'), ...tile('acc_neg')];
  return main ? [{ ...main, note: [main.note, what].filter(Boolean).join('; ') }, ...than, ...rest] : [];
}

/** Numbers that the test line of the log has. */
function testTiles(run: CollectedRun): Tile[] {
  const columns = run.log.phase('test')?.columns ?? new Map();
  return [...columns].slice(0, 6).map(([key, { value }]): Tile => {
    const last = value.at(-1) as number;
    return isShare(key)
      ? { name: nameOf(key), value: percent(last), unit: '%' }
      : { name: nameOf(key), value: number(last) };
  });
}

function dataOf(run: CollectedRun): string {
  const source = text(configValue(run, 'data.source'));
  const file = configValue(run, 'data.train');
  if (Array.isArray(file)) return `${file.length} files`;
  if (typeof file === 'string') return `${file.split('/').at(-1)}${source === 'auto' ? '' : ` (${source})`}`;
  return source ?? '';
}

function tokensOf(run: CollectedRun): string | undefined {
  const last = Math.max(0, ...run.log.phases.map(({ name }) => run.log.last(name, 'tokens') ?? 0));
  return last > 0 ? count(last, 'token').replace(/ tokens?$/, '') : undefined;
}

const text = (value: unknown) =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
