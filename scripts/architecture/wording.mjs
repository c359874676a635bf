// Comments, names and pages of src/ as texts: what may not come back, and what may only become less.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A line for each place where `pattern` matches a line of a source. */
function lines(sources, pattern, sentence) {
  return [...sources].flatMap(([path, file]) =>
    file.text.split('\n').flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}: ${sentence}`] : [])),
  );
}

/** A line for each mention of a name that something had before. */
export const formerNames = (sources) =>
  lines(sources, /former-?names?|\bformerly\b/i, 'what has another name now is read by that name alone');

/** A line for each comment that begins without subject and verb: alone on its line, after code, or in a block. */
export const vagueComments = (sources) =>
  [...sources].flatMap(([path, file]) =>
    [
      ...file.text.matchAll(
        /(?:^|\s)(?:\/\/|\/\*\*(?:\s*\n\s*\*)?) (?:As|Beside|By|(?:For|In|To|With) which|Most|Of|Such|What|Where|Whose)\b/g,
      ),
    ].map(({ index }) => {
      const line = file.text.slice(0, index + 1).split('\n').length;
      return `${path}:${line}: begin the comment of a function with a verb or with the noun that it returns`;
    }),
  );

/** A line for each row of docs/reference/configuration.md that says a key. */
export function configurationRows(root) {
  const path = 'docs/reference/configuration.md';
  if (!existsSync(join(root, path))) return [];
  return readFileSync(join(root, path), 'utf8')
    .split('\n')
    .flatMap((line, i) => (/^\| `/.test(line) ? [`${path}:${i + 1}: ${line.slice(0, 60)}`] : []));
}
