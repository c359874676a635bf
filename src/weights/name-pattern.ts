/**
 * Patterns over module names, as PEFT's configurations hold them: Python regular expressions. They come with an adapter from elsewhere,
 * so they run with a limit of processor time, and a construct that Python and JavaScript read differently is refused.
 */
import { withinProcessorTime } from '../native/processor-time.js';
import { warnOnce } from '../terminal/log.js';
import { show, WeightsError } from './error.js';

/** Processor time. */
const LIMIT_MS = 1000;
const MAX_CHARACTERS = 10_000;

/** One token of a pattern: an escape, a class, the start of a group, `{,n}`, or any other character. */
const TOKEN = /\\[\s\S]|\[\^?\]|\[(?:\\[\s\S]|[^\]\\])*\]|\(\?(?:P[<=]|<[=!]|[\s\S])|\{,\d+\}|[\s\S]/gy;
const SAME_ESCAPE = /^\\[dDwWsSbBntrfv1-9]$|^\\[^A-Za-z0-9]$/;

/** The JavaScript source of a Python pattern. @param where the file and key, for errors */
export function translatePattern(pattern: string, where: string): string {
  const refuse = (found: string): never => {
    throw new WeightsError(`${where}: the pattern ${show(pattern)} is not supported: ${found}`);
  };
  if (pattern.length > MAX_CHARACTERS) refuse(`it has more than ${MAX_CHARACTERS} characters`);
  const source = (pattern.match(TOKEN) ?? [])
    .map((token) => {
      if (token === '\\A') return '^';
      if (token === '\\Z') return '$';
      if (token === '(?P<') return '(?<';
      if (token.startsWith('{,')) return `{0${token.slice(1)}`;
      if (token.startsWith('\\')) return SAME_ESCAPE.test(token) ? token : refuse(`the escape ${token}`);
      if (token.startsWith('(?'))
        return /^\(\?(<?[=!]|:)$/.test(token) ? token : refuse(`the group ${token}`);
      if (token === '[]' || token === '[^]') return refuse("a class that begins with ']'");
      if (token.startsWith('[')) {
        const foreign = token.match(/\\[\s\S]/g)?.find((item) => !SAME_ESCAPE.test(item));
        return foreign === undefined ? token : refuse(`the escape ${foreign}`);
      }
      return token;
    })
    .join('');
  try {
    new RegExp(source);
  } catch (error) {
    refuse((error as Error).message);
  }
  return source;
}

/**
 * Tests every pattern against every name, from the start of the name (Python's `re.match`).
 *
 * @param sources JavaScript sources, see {@link translatePattern}
 * @returns [pattern][name]
 * @throws WeightsError when that takes longer than a second of a processor: the pattern backtracks without end
 */
export function matchNames(sources: readonly string[], names: readonly string[], where: string): boolean[][] {
  const expressions = sources.map((source) => new RegExp(`^(?:${source})`));
  const matches = withinProcessorTime(
    () => expressions.map((expression) => names.map((name) => expression.test(name))),
    LIMIT_MS,
  );
  if (!matches.late) return matches.value;
  throw new WeightsError(
    `${where}: the patterns take more than ${LIMIT_MS} ms of a processor on the names of the model; simplify them`,
  );
}

/** The value of the first pattern that fits the end of each name; a sentence says so where another one that fits has another value. */
export function byPattern(
  patterns: Readonly<Record<string, number>>,
  names: readonly string[],
  otherwise: number,
  where: string,
): number[] {
  const keys = Object.keys(patterns);
  if (keys.length === 0) return names.map(() => otherwise);
  // Experts have one parameter together.
  const distinct = [...new Set(names)];
  const matches = matchEnds(keys, distinct, where);
  const values = new Map(
    distinct.map((name, index) => {
      const [key, ...others] = keys.filter((_, which) => matches[which]![index]);
      if (key === undefined) return [name, otherwise];
      const other = others.find((each) => patterns[each] !== patterns[key]);
      if (other !== undefined)
        warnOnce(
          `${where}: ${show(key)} (${patterns[key]}) and ${show(other)} (${patterns[other]}) fit ${name}, and the first counts; PEFT takes the first too, and sorts them when it saves: leave one`,
        );
      return [name, patterns[key]!];
    }),
  );
  return names.map((name) => values.get(name)!);
}

/** The patterns that fit the end of no name. */
export function idlePatterns(
  patterns: Readonly<Record<string, number>>,
  names: readonly string[],
  where: string,
): string[] {
  const keys = Object.keys(patterns);
  const matches = matchEnds(keys, names, where);
  return keys.filter((_, which) => !matches[which]!.includes(true));
}

function matchEnds(patterns: readonly string[], names: readonly string[], where: string): boolean[][] {
  const sources = patterns.map((pattern) => `(?:.*\\.)?(?:${translatePattern(pattern, where)})$`);
  return matchNames(sources, names, where);
}

/** Whether a name is one of `targets` or ends with one after a dot. */
export function endsWithAny(targets: readonly string[]): (name: string) => boolean {
  const all = new Set(targets);
  return (name) => {
    for (let at = 0; at >= 0; ) {
      if (all.has(name.slice(at))) return true;
      const dot = name.indexOf('.', at);
      at = dot < 0 ? -1 : dot + 1;
    }
    return false;
  };
}
