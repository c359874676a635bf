/** A page: head, table of contents, sections, and the numbers that its script draws. */
import { formulaStyle, pageAssets } from './assets.js';
import { Html, html, jsonScript } from './html.js';
import type { Section } from './sections/section.js';

export interface PageOptions {
  readonly title: string;
  /** Line above the title: the kind of page, with links. */
  readonly above?: Html;
  /** Under the title. */
  readonly head: Html;
  readonly sections: readonly Section[];
  /** Data for the page's script. */
  readonly data: unknown;
  /** The thing that absent sections would describe. */
  readonly what?: string;
  /** Whether it may ask its server for news. */
  readonly isLive?: boolean;
}

/** A whole document that needs nothing else: the policy in it forbids every request and every script but its own. */
export function page(options: PageOptions): string {
  const { style, script, scriptHash } = pageAssets();
  const body = pageBody(options);
  const formulas = body.text.includes('<math') ? new Html(`<style>${formulaStyle()}</style>`) : undefined;
  const policy = `default-src 'none'; style-src 'unsafe-inline'; font-src data:; img-src data:; script-src 'sha256-${scriptHash}'; base-uri 'none'; ${options.isLive ? "connect-src 'self'; form-action 'self'" : "form-action 'none'"}`;
  const document = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${new Html(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><meta name="generator" content="steptrain">
<title>${options.title} · steptrain</title><link rel="icon" href="data:,">
<style>${new Html(style)}</style>${formulas}</head>
<body>${body}
${jsonScript('page-data', options.data)}<script>${new Html(script)}</script></body></html>
`;
  return document.text;
}

function pageBody({ title, above, head, sections, what = 'this run' }: PageOptions): Html {
  const present = sections.filter(({ body }) => body !== undefined);
  const absent = sections.filter(({ body }) => body === undefined);
  return html`<a class="skip" href="#main">To the content</a>
<header class="top"><div class="row"><span class="brand">steptrain</span>${above}</div></header>
<div class="layout"><nav aria-label="Sections"><ul>${present.map(({ id, title }) => html`<li><a href="#${id}">${title}</a></li>`)}</ul></nav>
<main id="main"><h1>${title}</h1><div id="head">${head}</div>
${present.map(({ id, title, body }) => html`<section id="${id}" aria-labelledby="${id}-title"><h2 id="${id}-title">${title}</h2><div data-section="${id}">${body}</div></section>`)}
${absent.length > 0 && html`<section id="absent"><h2>Not in ${what}</h2><ul class="absent">${absent.map(({ title, absent }) => html`<li><b>${title}.</b> ${absent}</li>`)}</ul></section>`}
</main></div>`;
}
