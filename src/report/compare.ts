/**
 * The page that compares runs: results, differences of their configurations, curves over each other, a sweep's table.
 */
import { basename, join } from 'node:path';
import { type CollectedRun, readLoosely } from './collect.js';
import { curves, type PhaseGroup, type Plot } from './curves.js';
import { count } from './format.js';
import { html } from './html.js';
import type { PageOptions } from './page.js';
import { comparedConfigurations, comparedResults } from './sections/compared.js';
import { learning } from './sections/learning.js';
import { sweepSection } from './sections/sweep.js';

/** Max lines in a plot that can be told apart. */
const MAX_COMPARED = 16;

export interface Compared {
  readonly runs: readonly CollectedRun[];
  /** Distinct, in the order of `runs`. */
  readonly names: readonly string[];
  /** The sweep that the runs are of. */
  readonly sweep?: ComparedSweep | undefined;
}

export interface ComparedSweep {
  readonly folder: string;
  readonly arms: readonly string[];
  readonly seeds: readonly string[];
}

export function comparePage({ runs, names, sweep }: Compared): PageOptions {
  // Runs of a sweep are in the order of seeds; only those of the first seed are drawn.
  const drawn = Math.min(MAX_COMPARED, sweep?.arms.length || runs.length);
  const groups = comparedCurves(runs.slice(0, drawn), names);
  const [first] = sweep?.seeds ?? [];
  const ofSome = first === undefined ? `the first ${drawn}` : `seed ${first}`;
  return {
    title: sweep === undefined ? count(runs.length, 'run') : `Sweep ${basename(sweep.folder)}`,
    head: html`<p class="hint">${sweep === undefined ? described(names) : describeSweep(sweep, runs.length)}</p>`,
    what: 'these runs',
    sections: [
      sweepSection(sweep === undefined ? undefined : readLoosely(join(sweep.folder, 'sweep.json'))),
      comparedResults(runs, names),
      {
        ...learning(groups),
        ...(runs.length > drawn ? { title: `Learning curves of ${ofSome}` } : {}),
      },
      comparedConfigurations(runs, names),
    ],
    data: { plots: groups.flatMap(({ plots }) => plots) },
  };
}

/** The table below has all names. */
const described = (names: readonly string[]) => (names.length > 4 ? '' : names.join(', '));

function describeSweep({ arms, seeds }: ComparedSweep, runs: number): string {
  return `${count(runs, 'run')}: ${count(arms.length, 'arm')} (${arms.join(', ')}), ${count(seeds.length, 'seed')} (${seeds.join(', ')})`;
}

/** A plot for each metric, with a line for each run. */
function comparedCurves(runs: readonly CollectedRun[], names: readonly string[]): PhaseGroup[] {
  const groups = new Map<string, Map<string, Plot>>();
  for (const [i, { log }] of runs.entries()) {
    for (const { name, plots } of curves(log)) {
      const known = groups.get(name) ?? new Map<string, Plot>();
      groups.set(name, known);
      for (const { series, ...plot } of plots.filter(({ minor }) => !minor)) {
        for (const { key, ...points } of series) {
          const id = `${plot.id}/${key}`;
          const { series: before = [], steps = 0 } = known.get(id) ?? {};
          const title =
            series.length > 1 || before.length > 0 || key !== plot.title.toLowerCase()
              ? key.replace('validation/', 'validation: ')
              : plot.title;
          known.set(id, {
            ...plot,
            id,
            title,
            about: '',
            steps: Math.max(steps, plot.steps),
            series: [...before, { key: names[i] as string, ...points }],
          });
        }
      }
    }
  }
  return [...groups].map(([name, plots]) => ({ name, phases: [], plots: [...plots.values()] }));
}

/** The shortest distinct endings of the paths; for keys in them (`sft.learning_rate=…`) the last word. */
export function shortNames(paths: readonly string[]): string[] {
  for (let parts = 1; ; parts++) {
    const names = paths.map((path) => path.split('/').slice(-parts).join('/'));
    const plain = names.map((name) => name.replace(/(?<=^|\/)[\w.]*\.(?=\w+=)/g, ''));
    if (new Set(plain).size === names.length) return plain;
    if (new Set(names).size === names.length || names.every((name, i) => name === paths[i])) return names;
  }
}
