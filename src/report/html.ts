/** HTML in which every inserted text is escaped: a run's name, a problem or a model's answer is never markup. */

/** Markup that is safe to insert as it is. */
export class Html {
  constructor(readonly text: string) {}
}

export type Content = Html | string | number | undefined | false | readonly Content[];

/** A template of markup; strings that are inserted are escaped, undefined and false insert nothing. */
export function html(parts: TemplateStringsArray, ...contents: readonly Content[]): Html {
  return new Html(parts.map((part, i) => part + (i < contents.length ? textOf(contents[i]) : '')).join(''));
}

const ESCAPED: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => ESCAPED[sign] as string);
}

/** A value as JSON inside a script element, where only `<` could end the element or begin a comment. */
export function jsonScript(id: string, value: unknown): Html {
  const json = JSON.stringify(value).replaceAll('<', '\\u003c');
  return new Html(`<script type="application/json" id="${escapeHtml(id)}">${json}</script>`);
}

function textOf(content: Content): string {
  if (content === undefined || content === false) return '';
  if (content instanceof Html) return content.text;
  if (typeof content === 'object') return content.map(textOf).join('');
  return escapeHtml(String(content));
}
