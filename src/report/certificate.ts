/** One page on the quality of a reward model, for people to attach to its weights. */
import {
  MIN_AUC,
  qualityRows,
  qualitySentences,
  type RewardQuality,
  standingOf,
} from '../eval/reward-quality.js';
import { percent } from '../eval/statistics/percent.js';
import { html } from './html.js';

export interface CertificateOptions {
  /** The reward model as it was named. */
  readonly name: string;
}

const STANDING = {
  strong: `The interval within problems is above ${percent(MIN_AUC)} %.`,
  weak: `The interval within problems is not above ${percent(MIN_AUC)} %: by this measure it hardly ranks right above wrong.`,
  unknown: 'No problem has both classes, so nothing is known of the ranking within problems.',
};

const CONTROLS =
  'Controls: place alone ranks earlier steps higher and reads nothing; shuffled has the scores of each problem dealt out anew; ' +
  'within a tenth of lengths compares steps of like length. Intervals are of the bootstrap over problems. Calibration is of the ' +
  'probabilities as they were given, on these steps.';

/** The page as Markdown and as a document of HTML without a script. */
export function certificate(
  quality: RewardQuality,
  { name }: CertificateOptions,
): Readonly<Record<'md' | 'html', string>> {
  const [heads = [], ...rows] = qualityRows(quality);
  const title = `Reward model ${name}`;
  const standing = STANDING[standingOf(quality)];
  const sentences = qualitySentences(quality);
  const facts = [
    `scorer: ${quality.scorer}`,
    `data: ${quality.data.join(', ')}`,
    ...(quality.weights === undefined ? [] : [`weights: ${quality.weights}`]),
    'measured by: steptrain eval reward-model',
  ];
  const cell = (text: string) => text.replace(/[\\|`*_<>[\]]/g, '\\$&').replaceAll('\n', ' ');
  const md = [
    `# ${cell(title)}`,
    standing,
    [heads, heads.map(() => '---'), ...rows.map((row) => row.map(cell))]
      .map((row) => `| ${row.join(' | ')} |`)
      .join('\n'),
    sentences.map((each) => `* ${cell(each)}`).join('\n'),
    CONTROLS,
    facts.map((each) => `* ${cell(each)}`).join('\n'),
  ].join('\n\n');
  const page = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${title}</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}th,td{padding:.2rem .8rem .2rem 0;text-align:right}th:first-child,td:first-child{text-align:left}</style></head>
<body><main><h1>${title}</h1><p><strong>${standing}</strong></p>
<table><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((text) => html`<td>${text}</td>`)}</tr>`)}</tbody></table>
<ul>${sentences.map((each) => html`<li>${each}</li>`)}</ul><p>${CONTROLS}</p>
<ul>${facts.map((each) => html`<li>${each}</li>`)}</ul></main></body></html>
`;
  return { md: `${md}\n`, html: page.text };
}
