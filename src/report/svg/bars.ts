/** A table whose last column draws the numbers as bars. */
import { type Html, html } from '../html.js';

export interface Bar {
  readonly name: string;
  readonly value: number;
  /** The value with its unit. */
  readonly shown: string;
  /** A second value, drawn as an outline: the planned one. */
  readonly outline?: number;
  readonly outlineShown?: string;
}

export function bars(
  rows: readonly Bar[],
  titles: { readonly name: string; readonly value: string; readonly outline?: string },
): Html {
  const top = Math.max(...rows.flatMap(({ value, outline = 0 }) => [value, outline]), Number.MIN_VALUE);
  const share = (value: number) => `${((100 * value) / top).toFixed(2)}%`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${titles.name}, ${titles.value}"><table class="bars"><thead><tr><th scope="col">${titles.name}</th>${
    titles.outline !== undefined && html`<th scope="col" class="n">${titles.outline}</th>`
  }<th scope="col" class="n">${titles.value}</th><td></td></tr></thead><tbody>
${rows.map(
  ({ name, value, shown, outline, outlineShown }) =>
    html`<tr><th scope="row">${name}</th>${
      titles.outline !== undefined && html`<td class="n">${outlineShown ?? '–'}</td>`
    }<td class="n">${shown}</td><td class="bar"><svg width="100%" height="14" aria-hidden="true"><rect class="area c1" width="${share(value)}" height="14" rx="2"/>${
      outline !== undefined &&
      html`<rect class="outline" y="1" height="12" width="${share(outline)}" rx="2"/>`
    }</svg></td></tr>`,
)}</tbody></table></div>`;
}
