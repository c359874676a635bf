/** The processes of a run: how fast each was, and how long it waited for the others. */
import type { CollectedRun } from '../collect.js';
import { count, number, percent } from '../format.js';
import { html } from '../html.js';
import type { Column } from '../metric-log.js';
import { bars } from '../svg/bars.js';
import type { Section } from './section.js';

export interface RankTotal {
  readonly rank: number;
  readonly tokens: number;
  readonly waited: number;
  readonly seconds: number;
}

/** Over all logged lines; empty for a run in one process. */
export function rankTotals({ log }: Pick<CollectedRun, 'log'>): RankTotal[] {
  const totals = new Map<number, { tokens: number; waited: number; seconds: number }>();
  for (const { columns } of log.phases) {
    const logged = columns.get('logged_seconds');
    if (!logged) continue;
    const secondsAt = new Map(logged.step.map((step, i) => [step, logged.value[i] as number]));
    for (const [key, column] of columns) {
      const [, rank] = /^rank_(\d+)_waited_seconds$/.exec(key) ?? [];
      if (rank === undefined) continue;
      const total = totals.get(Number(rank)) ?? { tokens: 0, waited: 0, seconds: 0 };
      totals.set(Number(rank), total);
      const rates = columns.get(`rank_${rank}_tokens_per_second`);
      eachStep(column, secondsAt, (waited, seconds) => {
        total.waited += waited;
        total.seconds += seconds;
      });
      if (rates)
        eachStep(rates, secondsAt, (rate, seconds) => {
          total.tokens += rate * seconds;
        });
    }
  }
  return [...totals].map(([rank, total]) => ({ rank, ...total })).sort((a, b) => a.rank - b.rank);
}

function eachStep(
  { step, value }: Column,
  secondsAt: ReadonlyMap<number, number>,
  take: (value: number, seconds: number) => void,
): void {
  step.forEach((at, i) => {
    take(value[i] as number, secondsAt.get(at) ?? 0);
  });
}

export function processes(run: CollectedRun): Section {
  const totals = rankTotals(run).filter(({ seconds }) => seconds > 0);
  const least = totals.reduce<RankTotal | undefined>(
    (found, total) => (found && share(found) <= share(total) ? found : total),
    undefined,
  );
  const rows = totals.map((total) => ({
    name: `rank ${total.rank}, ${number(total.tokens / total.seconds, 3)} tokens/s`,
    value: share(total),
    shown: `${percent(share(total))} %`,
  }));
  return {
    id: 'processes',
    title: 'Processes',
    body: least
      ? html`${bars(rows, { name: 'Process', value: 'waited, of its time' })}<p class="hint">In ${count(totals.length, 'process', 'processes')}, over the logged lines: tokens that each trained on or sampled, and the time in which it waited for the others or for their bytes. Rank ${least.rank} waited least (${percent(share(least))} %): that is about what the exchange itself takes, and what the others waited beyond it they waited for slower ones, or for those with more to do.</p>`
      : undefined,
    absent: 'The run had one process.',
  };
}

const share = ({ waited, seconds }: RankTotal) => waited / seconds;
