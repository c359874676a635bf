/** Shows the policy's answers during training, and their rewards. */
import type { CollectedRun } from '../collect.js';
import { number } from '../format.js';
import { type Html, html } from '../html.js';
import { typeset } from '../maths.js';
import { nameOf } from '../names.js';
import type { Rollout, RolloutAnswer, RolloutTurn } from '../rollouts.js';
import { type Counted, histogram } from '../svg/histogram.js';
import { box } from './judgement.js';
import type { Section } from './section.js';

export function rewards({ rollouts }: CollectedRun): Section {
  const rewarded = rollouts.flatMap(({ answers, label }) => answers.map((answer) => ({ ...answer, label })));
  const last = Math.max(0, ...rollouts.map(({ iteration }) => iteration));
  const early = rollouts.filter(({ iteration }) => iteration <= last / 2).flatMap(({ answers }) => answers);
  const late = rollouts.filter(({ iteration }) => iteration > last / 2).flatMap(({ answers }) => answers);
  const sources = [...new Set(rewarded.flatMap(({ terms }) => Object.keys(terms)))];
  const values = (answers: readonly { reward: number }[]) => answers.map(({ reward }) => reward);
  const judged = rewarded.filter(({ label, verdict }) => label !== undefined && verdict !== undefined);
  const figures = [
    box(
      'First and second half of training',
      `${rewarded.length.toLocaleString('en-US')} answers that samples.jsonl keeps: the first few of every iteration.`,
      drawn(
        last === 0
          ? [{ name: 'answers', values: values(rewarded) }]
          : [
              { name: 'first half', values: values(early) },
              { name: 'second half', values: values(late) },
            ],
        'How often answers had which reward',
      ),
    ),
    ...(judged.length > 0
      ? [
          box(
            'Right and wrong verdicts',
            'A reward that follows the labels is higher where the verdict was right.',
            drawn(
              [
                {
                  name: 'verdict right',
                  values: values(judged.filter(({ label, verdict }) => label === verdict)),
                },
                {
                  name: 'verdict wrong',
                  values: values(judged.filter(({ label, verdict }) => label !== verdict)),
                },
              ],
              'Rewards of right and of wrong verdicts',
            ),
          ),
        ]
      : []),
    ...sources.map((source) =>
      box(
        `Source: ${nameOf(source)}`,
        'What this source of rewards said, before it was weighed.',
        drawn(
          [{ name: source, values: rewarded.flatMap(({ terms }) => terms[source] ?? []) }],
          `Rewards of ${source}`,
          nameOf(source),
        ),
      ),
    ),
  ];
  return {
    id: 'rewards',
    title: 'Rewards',
    body: rewarded.length > 0 ? html`<div class="figures">${figures}</div>` : undefined,
    absent: 'samples.jsonl has answers and rewards of methods that sample from the policy.',
  };
}

const drawn = (kinds: readonly Counted[], label: string, title = 'reward of an answer'): Html =>
  histogram(kinds, { title, label, format: (value) => number(value, 3) });

const SHOWN = 6;
const SHOWN_ANSWERS = 4;

export function rolloutSection({ rollouts }: CollectedRun): Section {
  const answered = rollouts.filter(({ answers }) => answers.length > 0);
  // Evenly from the beginning to the end of training, so that changes can be seen.
  const step = Math.max(1, (answered.length - 1) / (SHOWN - 1));
  const chosen = [
    ...new Set(Array.from({ length: SHOWN }, (_, i) => answered[Math.round(i * step)])),
  ].flatMap((rollout) => rollout ?? []);
  return {
    id: 'rollouts',
    title: 'Rollouts',
    body:
      chosen.length > 0
        ? html`<p class="hint">${chosen.length} of ${answered.length} in samples.jsonl, from the first iteration to the last.${chosen.some(({ answers }) => answers.some(({ placed }) => Object.keys(placed).length > 0)) && ' Under a solution its rewards by token, from left to right, up where positive. A source that rewards steps or turns stands beside the reward by one number, such as its lowest step.'}</p>${chosen.map(card)}`
        : undefined,
    absent: 'samples.jsonl has rollouts of methods that sample from the policy.',
  };
}

function card({ iteration, problem, steps, label, answer, answers }: Rollout): Html {
  return html`<article class="card"><header><span class="tag">iteration ${iteration}</span>${answers.some(({ text }) => text !== undefined) && answers.length > SHOWN_ANSWERS && html` <span class="tag">${SHOWN_ANSWERS} of ${answers.length} solutions</span>`}${answer !== undefined && html` <span class="tag">answer ${answer}</span>`}</header>
<p class="problem">${typeset(problem)}</p>
${steps.length > 0 && html`<ol class="steps">${steps.map((text, i) => html`<li><span class="text">${typeset(text)}</span>${i === steps.length - 1 && label !== undefined && html` <span class="verdict ${label === 1 ? 'yes' : 'no'}">${label === 1 ? '✓' : '✗'} label ${label === 1 ? 'right' : 'wrong'}</span>`}</li>`)}</ol>`}
${answers.some(({ text }) => text !== undefined) ? answers.slice(0, SHOWN_ANSWERS).map((each) => solution(each)) : verdicts(answers, label)}</article>`;
}

/** A turn of an episode: what the policy wrote, what came back in a line each, and what the turn was paid. */
function turn({ text, results, reward, advantage }: RolloutTurn): Html {
  return html`<li><span class="text">${typeset(text)}</span>${results.map((line) => html`<br><span class="hint">${line}</span>`)}
<div class="judgement"><span class="tag">reward ${number(reward)}</span>${advantage !== undefined && html`<span class="tag">advantage ${number(advantage)}</span>`}</div></li>`;
}

/** A table of the answers of a policy that judges. */
function verdicts(answers: readonly RolloutAnswer[], label: 0 | 1 | undefined): Html {
  const reasons = answers.some(({ reason }) => reason !== undefined);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Answers and rewards"><table><thead><tr><th scope="col">answer</th>${reasons && html`<th scope="col">reason</th>`}<th scope="col">against the label</th><th scope="col" class="n">reward</th><th scope="col" class="n">advantage</th><th scope="col" class="n">log-prob</th></tr></thead><tbody>${answers.map(
    ({ verdict, reason, reward, advantage, logprob }) =>
      html`<tr><th scope="row"><span class="verdict ${verdict === undefined ? 'none' : verdict === 1 ? 'yes' : 'no'}">${verdict === undefined ? '? unreadable' : verdict === 1 ? '✓ right' : '✗ wrong'}</span></th>${reasons && html`<td>${reason === undefined ? '–' : typeset(reason)}</td>`}<td>${label === undefined ? '–' : verdict === label ? 'agrees' : html`<strong class="remark">differs</strong>`}</td><td class="n">${number(reward)}</td><td class="n">${advantage === undefined ? '–' : number(advantage)}</td><td class="n">${logprob === undefined ? '–' : number(logprob)}</td></tr>`,
  )}</tbody></table></div>`;
}

function solution(answer: RolloutAnswer): Html {
  const { text = '', turns, reward, advantage, tokens, truncated, terms, placed } = answer;
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const rewards = Object.entries(placed).map(([token, value]) => [Number(token), value] as const);
  const most = Math.max(...rewards.map(([, value]) => Math.abs(value)), Number.MIN_VALUE);
  return html`<div class="solution"><header><span class="tag strong">reward ${number(reward)}</span>${advantage !== undefined && html` <span class="tag">advantage ${number(advantage)}</span>`} <span class="tag">${tokens} tokens</span>${truncated && html` <span class="tag">‖ cut off</span>`}${Object.entries(terms).map(([name, value]) => html` <span class="tag">${nameOf(name)} ${number(value)}</span>`)}</header>
<ol class="steps plain">${turns?.map(turn) ?? lines.map((line) => html`<li><span class="text">${typeset(line)}</span></li>`)}</ol>
${
  rewards.length > 0 &&
  html`<svg class="strip" viewBox="0 0 ${Math.max(tokens, 1) * 10} 44" preserveAspectRatio="none" role="img" aria-label="Rewards by token: ${rewards
    .slice(0, 20)
    .map(([token, value]) => `${token}: ${number(value, 3)}`)
    .join(', ')}"><line class="ideal" x1="0" x2="${tokens * 10}" y1="22" y2="22"/>${rewards.map(
    ([token, value]) => {
      const height = Math.max(1, (20 * Math.abs(value)) / most);
      return html`<rect class="area ${value < 0 ? 'c2' : 'c1'}" x="${token * 10 + 1}" width="8" y="${(value < 0 ? 22 : 22 - height).toFixed(1)}" height="${height.toFixed(1)}"><title>token ${token}: ${number(value)}</title></rect>`;
    },
  )}</svg>`
}</div>`;
}
