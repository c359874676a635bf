import type { SolvingProgress } from '../../eval/solving/evaluate-solving.js';

const UNITS = {
  samples: 'sample',
  scores: 'scored sample',
  verdicts: 'judged sample',
  search: 'searched problem',
} as const;

/** A line for each phase: samples, then scores and verdicts where they are asked for; another for problems solved after these. */
export async function solvingProgress() {
  const { createProgress } = await import('../../terminal/progress.js');
  const began = performance.now();
  let shown:
    | { readonly phase: string; readonly total: number; readonly bar: ReturnType<typeof createProgress> }
    | undefined;
  const state = {
    done: 0,
    total: 0,
    update({ phase, done, total, kept, right, tokens }: SolvingProgress) {
      const samples = phase === 'samples';
      if (samples) Object.assign(state, { done, total });
      if (shown?.phase !== phase || shown.total !== total) {
        shown?.bar.finish();
        const bar = createProgress({ total, start: samples ? kept : 0, unit: UNITS[phase] });
        shown = { phase, total, bar };
      }
      const seconds = (performance.now() - began) / 1000;
      shown.bar.update(done, {
        ...(samples && done > 0 ? { right: `${((100 * right) / done).toFixed(1)} %` } : {}),
        ...(samples && tokens > 0 ? { 'tokens/s': tokens / seconds } : {}),
      });
    },
    finish: () => shown?.bar.finish(),
  };
  return state;
}
