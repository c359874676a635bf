/** The pages: the list of runs, a run, a comparison. */
import type { CollectedRun } from '../report/collect.js';
import { comparePage } from '../report/compare.js';
import { number, percent } from '../report/format.js';
import { type Html, html } from '../report/html.js';
import { isShare, nameOf } from '../report/names.js';
import type { PageOptions } from '../report/page.js';
import { runPage } from '../report/run-page.js';
import type { Children } from './children.js';
import type { Runs } from './runs.js';

const query = (route: string, name: string) => `${route}?name=${encodeURIComponent(name)}`;

const toList = html`<a href="/">All runs</a>`;

export async function listPage(runs: Runs): Promise<PageOptions> {
  const names = runs.names();
  const rows = await Promise.all(names.map(async (name) => ({ name, run: await runs.read(name) })));
  const newest = rows
    .flatMap(({ name, run }) => (run ? [{ name, run }] : []))
    .sort((a, b) => b.run.changed - a.run.changed);
  return {
    title: 'Runs',
    head: html`<p class="hint">${runs.root}</p>`,
    sections: [
      {
        id: 'runs',
        title: 'Newest first',
        body: newest.length > 0 ? table(newest) : undefined,
        absent: `There is no run below ${runs.root} yet; steptrain run makes one.`,
      },
    ],
    what: 'this folder',
    data: { live: '/events' },
  };
}

const SIGNS = { running: '●', finished: '✓', stopped: '‖' } as const;

function table(rows: readonly { readonly name: string; readonly run: CollectedRun }[]): Html {
  return html`<form action="/compare" method="get"><div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="results"><thead><tr><td></td><th scope="col">Run</th><th scope="col">method</th><th scope="col">state</th><th scope="col" class="n">step</th><th scope="col">result</th><th scope="col">last line (UTC)</th></tr></thead><tbody>${rows.map(
    ({ name, run }) =>
      html`<tr><td><input type="checkbox" name="run" value="${name}" aria-label="compare ${name}"></td><th scope="row"><a href="${query('/run', name)}">${name}</a></th><td>${String(run.config.method ?? '')}</td><td><span class="status ${run.status}"><span aria-hidden="true">${SIGNS[run.status]}</span> ${run.status}</span></td><td class="n">${number(run.log.step)}</td><td>${headline(run)}</td><td>${run.changed > 0 && new Date(run.changed).toISOString().slice(0, 16).replace('T', ' ')}</td></tr>`,
  )}</tbody></table></div><p><button type="submit">Compare the chosen runs</button></p></form>`;
}

function headline({ log, report }: CollectedRun): string {
  const of = report?.metrics_unseen ?? report?.metrics;
  if (of && of.n > 0) return `F1 macro ${percent(of.f1_macro)} %`;
  const [first] = log.phase('test')?.columns ?? [];
  if (first) {
    const value = first[1].value.at(-1) as number;
    return `${nameOf(first[0])} ${isShare(first[0]) ? `${percent(value)} %` : number(value)}`;
  }
  const phase = log.phases.at(-1);
  const loss = phase && log.last(phase.name, 'loss');
  return loss === undefined ? '' : `${nameOf(phase?.name ?? '')}: loss ${number(loss)}`;
}

export function liveRunPage(name: string, run: CollectedRun, children: Children): PageOptions {
  const page = runPage(run);
  return {
    ...page,
    title: name === '.' ? run.name : name,
    above: toList,
    head: html`${page.head}${controls(name, run, children)}`,
    data: { ...page.data, live: query('/events', name) },
  };
}

function controls(name: string, run: CollectedRun, children: Children): Html {
  const button = (action: string, label: string) =>
    html`<p><button type="button" data-post="${query(action, name)}">${label}</button> <span class="hint" role="status"></span></p>`;
  const failed = children.failure(run.path);
  if (children.isOwn(run.path)) return button('/stop', '‖ Stop after the current step');
  if (run.status === 'running')
    return html`<p class="hint">It runs in another terminal: Ctrl-C there stops it with a checkpoint.</p>`;
  return html`${failed !== undefined && html`<p class="warning"><strong>It could not go on</strong> ${failed}</p>`}${run.status === 'stopped' && button('/resume', '▶ Resume from the last checkpoint')}`;
}

export async function comparedPage(runs: Runs, names: readonly string[]): Promise<PageOptions | undefined> {
  const found = await Promise.all(names.map((name) => runs.read(name)));
  const known = found.flatMap((run, i) => (run ? [{ run, name: names[i] as string }] : []));
  if (known.length < 1) return undefined;
  return {
    ...comparePage({ runs: known.map(({ run }) => run), names: known.map(({ name }) => name) }),
    above: toList,
  };
}
