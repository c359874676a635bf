/** Text with TeX in it: the parts between dollar signs, \(…\) and \[…\] become MathML, all else is escaped. */
import temml from 'temml';
import { attempt } from '../native/attempt.js';
import { escapeHtml, Html } from './html.js';

/** `$$…$$`, `\[…\]`, `\(…\)`, `$…$`. A dollar before a digit and after a space, as in "$5 and $6", is money. */
const FORMULA =
  /\$\$([^$]{1,4000}?)\$\$|\\\[([\s\S]{1,4000}?)\\\]|\\\(([\s\S]{1,4000}?)\\\)|\$(?!\s)((?:\\\$|[^$\n]){1,2000}?)(?<!\s)\$(?!\d)/g;

/** More in one text is left as it was written: a page must be ready in a moment. */
const MAX_FORMULAS = 200;

export function typeset(text: string): Html {
  let found = 0;
  let at = 0;
  let markup = '';
  for (const match of text.matchAll(FORMULA)) {
    if (++found > MAX_FORMULAS) break;
    const [whole, dollars, bracket, parenthesis, dollar] = match;
    const tex = dollars ?? bracket ?? parenthesis ?? dollar ?? '';
    markup += escapeHtml(text.slice(at, match.index));
    markup += formula(tex, dollars !== undefined || bracket !== undefined) ?? escapeHtml(whole);
    at = match.index + whole.length;
  }
  return new Html(markup + escapeHtml(text.slice(at)));
}

/** Undefined where it is no TeX: it stays as it was written. */
function formula(tex: string, displayMode: boolean): string | undefined {
  return attempt(() =>
    temml.renderToString(tex, {
      displayMode,
      throwOnError: true,
      trust: false,
      strict: false,
      maxExpand: 200,
      maxSize: [20, 20],
    }),
  );
}
