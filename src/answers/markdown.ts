// A solution without Markdown: headings, bullets, quotes and code fences are no part of an answer.

/** Headings that announce an answer below them, without marks of emphasis. */
const ANNOUNCES =
  /^(?:\d+[.)]\s*)?(?:(?:the|my)\s+)?((?:final\s+)?)(?:correct\s+)?(?:answers?|results?)\s*(?:[:：]|[–—]|\s-(?=\s|$))?\s*(.*)$/iu;
const ANNOUNCES_CHINESE = /^(最终|最後)?答案\s*[:：]?\s*(.*)$/u;

export interface PlainSolution {
  readonly text: string;
  /** Start of the text below the last heading. */
  readonly body: number;
}

interface Line {
  readonly text: string;
  readonly kind: 'text' | 'heading';
}

/**
 * The solution as text. A heading keeps its words. One that announces an answer becomes `Answer:` where an answer
 * follows it, and `####` before an answer stays, as in GSM8K.
 *
 * @param isAnswer whether a text is nothing but an answer
 */
export function withoutMarkdown(text: string, isAnswer: (text: string) => boolean): PlainSolution {
  if (!/^[ \t]{0,9}(?:[>#*_`=~+•-]|<\w)/m.test(text)) return { text, body: 0 };
  const lines = linesOf(text);
  const written: string[] = [];
  let body = 0;
  let length = 0;
  for (const [i, { text: line, kind }] of lines.entries()) {
    const below = kind === 'heading' ? paragraphAfter(lines, i) : '';
    const own = kind === 'heading' ? heading(line, below, isAnswer) : line;
    written.push(own);
    length += own.length + 1;
    if (below !== '') body = length;
  }
  return { text: written.join('\n'), body };
}

/** The text of a heading as an answer. */
function heading(line: string, below: string, isAnswer: (text: string) => boolean): string {
  const [, marks = '', content = ''] = /^(#*)\s*(.*)$/.exec(line) ?? [];
  const said = withoutEmphasis(content).replace(/^[^\p{L}\p{N}$\\(.+-]+/u, '');
  const [, final = '', rest] = ANNOUNCES.exec(said) ?? ANNOUNCES_CHINESE.exec(said) ?? [];
  if (rest !== undefined && (rest === '' || isAnswer(rest))) {
    if (rest === '' && !isAnswer(below)) return '';
    return `${final ? 'Final answer' : 'Answer'}: ${rest}`;
  }
  const isValue =
    isAnswer(content) && (/[\d$\\]/.test(content) || below === '' || content.trim().length === 1);
  if (marks.length >= 4 && isValue) return `${marks} ${content}`;
  return isValue || /\d/.test(content) || below === '' ? content : '';
}

/** Up to the next empty line, heading or end; a displayed formula whole. */
function paragraphAfter(lines: readonly Line[], at: number): string {
  const found: string[] = [];
  for (let i = at + 1; i < lines.length; i++) {
    const { text, kind } = lines[i] as Line;
    if (kind === 'heading') break;
    if (text.trim() !== '') found.push(text);
    else if (found.length > 0) break;
  }
  return found.join('\n');
}

const RULE = /^\s{0,3}(?:(?:-\s?){3,}|(?:\*\s?){3,}|(?:_\s?){3,}|={2,})\s*$/;
const FENCE = /^\s*(?:`{3,}|~{3,})[\w-]*\s*$/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
/** Headings, and lines that look like one, are no longer. */
const MAX_TITLE = 300;
/** A line in bold that is no more than a few words is a heading too. */
const BOLD =
  /^\s*(?:[-*+•]\s+)?(?:\*\*(?!\s)([^*]+)\*\*|__(?!\s)([^_]+)__|<(b|strong|h[1-6])>([^<]+)<\/\3>)\s*:?\s*$/i;

function linesOf(text: string): Line[] {
  const lines: Line[] = [];
  const isInside = displays();
  for (const given of text.split('\n')) {
    if (isInside(given)) lines.push({ text: given, kind: 'text' });
    else lines.push(lineOf(given.replace(/^(?:\s{0,3}>\s?)+/, ''), lines));
  }
  return lines;
}

function lineOf(line: string, before: Line[]): Line {
  if (line.length > MAX_TITLE) return { text: line, kind: 'text' };
  if (FENCE.test(line)) return { text: '', kind: 'text' };
  if (RULE.test(line)) {
    const above = before.at(-1);
    // A rule right below words underlines a heading.
    if (/^\s*(?:=|-{3})/.test(line) && above?.kind === 'text' && isTitle(above.text))
      before[before.length - 1] = { text: above.text.trim(), kind: 'heading' };
    return { text: '', kind: 'text' };
  }
  const [, marks, content] = HEADING.exec(line) ?? [];
  if (marks !== undefined && content !== undefined)
    return {
      text: content === '' ? marks : `${marks} ${content}`,
      kind: content === '' ? 'text' : 'heading',
    };
  const [, stars, bars, , tag] = BOLD.exec(line) ?? [];
  const bold = stars ?? bars ?? tag;
  if (bold !== undefined && isTitle(bold)) return { text: bold.trim(), kind: 'heading' };
  const slanted = /^\s*(?:_([^_\s][^_]*)_|<(i|em)>([^<]+)<\/\2>)\s*$/i.exec(line);
  const marked = bars ?? tag ?? slanted?.[1] ?? slanted?.[3];
  if (marked !== undefined) return { text: marked, kind: 'text' };
  const [, item] = /^\s{0,9}[-*+•]\s+(\S.*)$/.exec(line) ?? [];
  return { text: item ?? line, kind: 'text' };
}

/** A few words without a value. */
const isTitle = (text: string): boolean =>
  /^[^\d$\\]*\p{L}[^\d$\\]*$/u.test(text) && text.trim().split(/\s+/).length <= 4;

/** Whether a line still belongs to a displayed formula or an environment; takes the lines in order. */
function displays(): (line: string) => boolean {
  let dollars = false;
  let depth = 0;
  return (line) => {
    const isInside = dollars || depth > 0;
    for (const [mark] of line.matchAll(/\$\$|\\\\|\\[[\]]|\\(?:begin|end)\{/g)) {
      if (mark === '$$') dollars = !dollars;
      else if (mark !== '\\\\') depth = Math.max(0, depth + (mark === '\\[' || mark === '\\begin{' ? 1 : -1));
    }
    return isInside;
  };
}

function withoutEmphasis(text: string): string {
  return text
    .replace(/<\/?(?:b|strong|em|i|u)>/gi, '')
    .replace(/^[\s*_`]+|[\s*_`]+$/g, '')
    .replace(/[*_`]{1,3}(?=\s*[:：]|\s*[–—])/g, '');
}
