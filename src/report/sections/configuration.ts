/** The complete configuration, which `steptrain run` reads again. */
import type { CollectedRun } from '../collect.js';
import { type Html, html } from '../html.js';
import type { Section } from './section.js';

export function configuration({ configText }: CollectedRun): Section {
  return {
    id: 'configuration',
    title: 'Configuration',
    body:
      configText.trim() === ''
        ? undefined
        : html`<details><summary>config.yaml, complete and commented: <code>steptrain run config.yaml</code> repeats the run</summary><pre class="code" tabindex="0">${configText.split('\n').map(line)}</pre></details>`,
    absent: 'config.yaml is empty.',
  };
}

function line(text: string): Html {
  if (/^\s*#/.test(text)) return html`<span class="comment">${text}</span>\n`;
  const [, indent, key, rest] = /^(\s*(?:- )?)([\w.-]+:)(.*)$/.exec(text) ?? [];
  return key === undefined ? html`${text}\n` : html`${indent}<b>${key}</b>${rest}\n`;
}
