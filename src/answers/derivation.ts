// Finds remarks after the answer in a sentence: its origin, its rounding, or a value that it is not.
import { answersEqual } from './equal.js';

/** Words after which no answer is given any more, though other numbers may be. */
const AFTER =
  /\s*(?:(?:,\s*|\s)(?:(?:and|but)\s)?(?:which|because|since|where|when|obtained|found|calculated|computed|derived|rounded|given that|that is|i\.e\.|not|rather than|instead of)\b|,\s*(?:as|so|meaning|respectively|of (?:which|whom|them|these))\b(?!\s+well)|,\s*(?:in (?:all|total|the end)|al(?:together|l together)|overall|exactly|precisely|to be (?:exact|precise))\b(?!.*\d)|\s[–—]\s(?=\p{L}{2})|\s--\s?(?=\p{L}{2}))/u;
/** Words after a mark, which are a remark where no number follows: `72; done`, `72, I think`. */
const REMARK =
  /\s*[,;:]\s+(?=(?:\p{L}['’\p{L}]+|I\s\p{L}{2,})(?:[\s,;.!?]|$))(?!(?:and|or|nor|plus|minus|times|but|if|unless|mod|base|in|per|pi|infinity|inf|none|no|not|nope|never|wait|wrong|incorrect|sorry|oops|actually|half|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundreds?|thousands?|millions?|billions?|trillions?|dozens?)\b)[^\d$\\=<>≤≥+*/^]*$/iu;
/** A dash before words likewise. */
const DASHED = /\s-\s(?=\p{L}{2})[^\d$\\=<>≤≥+*/^]*$/u;
/** Brackets at the end. */
const BRACKETS = /^([^()[\]]*[^()[\]\s])\s+(?:\(([^()]*)\)|\[([^[\]]*)\])$/;
/** Words in brackets with which the value is another. */
const OTHER = /^(?:mod|base|sqrt|dozens?|(?:hundred|thousand|million|billion|trillion)s?)$/i;
/** A verdict before its reason: `No, they do not meet`; not the first of several, nor one that is taken back. */
const VERDICT =
  /^\W*(yes|no|true|false)(?=(?:\s*[,;:]|\s+[-–—]+)\s|,?\s+(?:because|since|as)\b)(?!.*\b(?:yes|no|true|false|wait|sorry|actually)\b)/is;
/** A name before its reason: `Tom, who has more`. */
const NAME = /^(\p{Lu}[\p{L}'’-]*(?: \p{Lu}[\p{L}'’-]*){0,2}),?\s+(?:because|since|who|whose)\b/u;
const STEPS = 2000;

/** The answer at the beginning of a sentence: `14 (7*2)` and `14, which is 7*2` are 14. The whole sentence where it begins with none. */
export function withoutDerivation(said: string): string {
  const [, verdict] = VERDICT.exec(said) ?? NAME.exec(said) ?? [];
  if (verdict !== undefined) return verdict;
  const at =
    [AFTER, REMARK, DASHED]
      .map((words) => said.search(words))
      .filter((found) => found > 0)
      .sort((a, b) => a - b)[0] ?? -1;
  const head = at > 0 && isValue(said.slice(0, at)) ? said.slice(0, at).trim() : said;
  const [, value = '', round, square] = BRACKETS.exec(head) ?? [];
  const note = round ?? square ?? '';
  if (!isValue(value)) return head;
  // `2 (x + 1)` is a product; `3 (mod 5)`, `12 (in thousands)` and `x = 3 (and y = 4)` are not 3 and 12.
  const words = note.replace(/\\[a-zA-Z]+/g, ' ').match(/\p{L}{3,}/gu) ?? [];
  if (/^\s*(?:and|or|plus|minus)\b/i.test(note) || words.some((word) => OTHER.test(word))) return head;
  if (words.length > 0) return value;
  const worked = note.replace(/^\s*=/, '').replace(/=.*$/s, '');
  return /[-+*/^×·÷\\]/.test(worked) && answersEqual(worked, value, { steps: STEPS }).equal ? value : head;
}

/** Numbers or formulas, and words only after them. */
function isValue(text: string): boolean {
  const plain = text
    .replace(/\$[^$]*\$|\\\([\s\S]*?\\\)/g, ' 0 ')
    .replace(/\\[a-zA-Z]+|(?<=\d\W*)\b(?:and|or)\b(?=\W*\d)/g, ' ');
  return /\d/.test(plain) && !/\p{L}{2,}[^\p{L}]*\d/u.test(plain.replace(/^\s*\p{L}+\s*=/u, ''));
}
