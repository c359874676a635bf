/** Forms in which two texts count as the same. */

/** Raised and lowered characters and fractions, whose compatibility form is another number: 3² is not 32, and 3½ not 31⁄2. */
const KEPT = /[ªº²³¹¼-¾ʰ-ʸˠ-ˤᴬ-ᵪ⁰-₟⅐-⅟↉]+/gu;
const HAS_KEPT = new RegExp(KEPT.source, 'u');

/** The text compatibility-normalised and in lower case; raised and lowered characters and fractions stay. */
export function folded(text: string): string {
  if (!HAS_KEPT.test(text)) return text.normalize('NFKC').toLowerCase();
  let all = '';
  let at = 0;
  for (const { 0: kept, index } of text.matchAll(KEPT)) {
    all += text.slice(at, index).normalize('NFKC').toLowerCase() + kept;
    at = index + kept.length;
  }
  return all + text.slice(at).normalize('NFKC').toLowerCase();
}

/**
 * The form in which two problem texts are one problem, whose answers and solutions belong to both: runs of white space as one space. Letter
 * case counts, as $A$ and $a$ may both stand in a problem.
 */
export function problemText(problem: string): string {
  return problem
    .normalize('NFC')
    .replace(/\s{2,}|[^\S ]/gu, ' ')
    .trim();
}
