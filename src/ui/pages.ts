/** The pages: the list of runs, a run, a comparison. */
import type { CollectedRun } from '../report/collect.js';
import { comparePage } from '../report/compare.js';
import { type Html, html } from '../report/html.js';
import type { PageOptions } from '../report/page.js';
import { runPage } from '../report/run-page.js';
import type { Children } from './children.js';
import { runList } from './list.js';
import type { Runs } from './runs.js';

const query = (route: string, name: string) => `${route}?name=${encodeURIComponent(name)}`;

const toList = html`<a href="/">All runs</a>`;

export async function listPage(runs: Runs): Promise<PageOptions> {
  const names = runs.names();
  const rows = await Promise.all(names.map(async (name) => ({ name, run: await runs.read(name) })));
  const listed = rows.flatMap(({ name, run }) => (run ? [{ name, run }] : []));
  return {
    title: 'Runs',
    head: html`<p class="hint">${runs.root}</p>`,
    sections: [
      {
        id: 'runs',
        title: 'Newest first',
        body: listed.length > 0 ? runList(listed) : undefined,
        absent: `There is no run below ${runs.root} yet; steptrain run makes one.`,
      },
    ],
    what: 'this folder',
    data: { live: '/events' },
  };
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
