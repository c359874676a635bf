/** The page of one run. */
import type { CollectedRun } from './collect.js';
import { curves, type Plot } from './curves.js';
import { type PageOptions, page } from './page.js';
import { configuration } from './sections/configuration.js';
import { further } from './sections/further.js';
import { judgement } from './sections/judgement.js';
import { learning } from './sections/learning.js';
import { processes } from './sections/processes.js';
import { memory, time } from './sections/resources.js';
import { results } from './sections/results.js';
import { rewards, rolloutSection } from './sections/rollouts.js';
import { solutionSection } from './sections/solutions.js';
import { summary } from './sections/summary.js';

/** Data for the page's script. */
export interface PageData {
  readonly plots: readonly Plot[];
}

export function runPage(run: CollectedRun): PageOptions & { readonly data: PageData } {
  const groups = curves(run.log);
  return {
    title: run.name,
    head: summary(run),
    sections: [
      results(run),
      learning(groups),
      judgement(run),
      rewards(run),
      rolloutSection(run),
      solutionSection(run),
      further(run),
      time(run),
      processes(run),
      memory(run),
      configuration(run),
    ],
    data: { plots: groups.flatMap(({ plots }) => plots) },
  };
}

export const renderRun = (run: CollectedRun): string => page(runPage(run));
