/** Judged solutions to read: every step with its label, the model's verdict and its probability. */
import type { VerdictRow } from '../../eval/reports/dump.js';
import type { CollectedRun } from '../collect.js';
import { percent } from '../format.js';
import { type Html, html } from '../html.js';
import { typeset } from '../maths.js';
import { chosenSolutions, type JudgedSolution, outcomeOf } from '../solutions.js';
import type { Section } from './section.js';

export function solutionSection({ solutions }: CollectedRun): Section {
  const chosen = chosenSolutions(solutions);
  return {
    id: 'solutions',
    title: 'Sample solutions',
    body:
      chosen.length > 0
        ? html`<p class="hint">${chosen.length} of ${solutions.length.toLocaleString('en-US')} judged solutions: the most confident mistakes first, then some without one. <span class="verdict yes">✓ right</span> <span class="verdict no">✗ wrong</span> as the model judges; the bar is its probability of “right”.</p>${chosen.map(card)}`
        : undefined,
    absent: 'verdicts.jsonl is written by methods that judge steps, when the final evaluation has ended.',
  };
}

function card({ problem, steps }: JudgedSolution): Html {
  const mistakes = steps.filter((step) => outcomeOf(step) !== 'right').length;
  return html`<article class="card"><header><span class="tag ${mistakes > 0 && 'strong'}">${mistakes === 0 ? 'judged without a mistake' : `${mistakes} of ${steps.length} steps misjudged`}</span></header>
<p class="problem">${typeset(problem)}</p>
<ol class="steps judged">${steps.map(step)}</ol></article>`;
}

const REMARK = {
  right: '',
  missed: 'mistake not seen',
  'false alarm': 'right step called wrong',
  unreadable: 'no verdict to read',
} as const;

function step(row: VerdictRow): Html {
  const { text, results = [], label, verdict, probability, reason, seen } = row;
  const outcome = outcomeOf(row);
  const [sign, word, kind] =
    verdict === null
      ? ['?', 'unreadable', 'none']
      : verdict === 1
        ? ['✓', 'right', 'yes']
        : ['✗', 'wrong', 'no'];
  return html`<li value="${row.step + 1}" class="${outcome === 'right' ? 'agrees' : 'differs'}"><span class="text">${typeset(text)}</span>${results.map((line) => html`<br><span class="hint">${line}</span>`)}
<span class="judgement"><span class="verdict ${kind}">${sign} ${word}</span><svg class="probability" viewBox="0 0 60 8" width="60" height="8" role="img" aria-label="probability of right ${percent(probability, 0)} %"><rect class="track" width="60" height="8" rx="2"/><rect class="area c1" width="${(60 * probability).toFixed(1)}" height="8" rx="2"/></svg><span class="n">${percent(probability, 0)} %</span><span class="hint">label ${label === 1 ? '✓ right' : '✗ wrong'}${seen === true && ', seen in training'}</span>${REMARK[outcome] !== '' && html`<strong class="remark">${REMARK[outcome]}</strong>`}${reason !== undefined && html`<span class="hint">reason: ${typeset(reason)}</span>`}</span></li>`;
}
