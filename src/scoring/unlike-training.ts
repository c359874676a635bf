/** Solutions that are written like none that a judge learned from: its verdicts on them say little. */
import { calculationsIn } from '../data/equations/calculations.js';
import type { Scorer, Solution, UnlikeTraining } from './scorer.js';
import type { JudgeSettings } from './settings.js';
import { foreignPairs, foreignSteps, foreignWords } from './verdict/step-forms.js';

/** Max unknown words shown. */
const SHOWN_WORDS = 5;

type Text = Pick<Solution, 'problem' | 'steps'>;
type UnlikeBy = (solution: Text) => UnlikeTraining | undefined;

/** Finds such text by the pairs, forms and words in the card of a judge; undefined where the card has none. */
export function unlikeBy(settings: JudgeSettings | undefined): UnlikeBy | undefined {
  if (settings?.kind !== 'verdict') return undefined;
  const { forms = [], words = [], word_pairs: pairs = [], likelihood } = settings;
  if (likelihood?.of === 'calculations')
    return ({ steps }) => {
      const places = steps.flatMap((step, i) => (calculationsIn(step).length > 0 ? [] : [i]));
      return places.length > 0 ? { places, forms: [], words: [] } : undefined;
    };
  if (forms.length + words.length + pairs.length === 0) return undefined;
  const inProblem = pairs.length > 0 ? foreignPairs(pairs) : undefined;
  return ({ problem, steps }) => {
    const unknown = inProblem?.(problem);
    if (unknown && unknown.words.length + unknown.neighbours.length > 0) {
      const places = steps.map((_, i) => i);
      return { places, from: 0, forms, words: unknown.words, inProblem: unknown.neighbours };
    }
    const places = forms.length > 0 ? foreignSteps(steps, forms) : [];
    if (places.length > 0) return { places, from: places[0] as number, forms, words: [] };
    const foreign = words.length > 0 ? foreignWords(steps, words) : [];
    const withForeign = foreign.flatMap((of, i) => (of.length > 0 ? [i] : []));
    const [from] = withForeign;
    return from === undefined
      ? undefined
      : { places: withForeign, from, forms, words: [...new Set(foreign.flat())] };
  };
}

/** The scorer with what each solution has that it learned nothing like. */
export function tellingUnlike(scorer: Scorer, unlike: UnlikeBy): Scorer {
  return {
    ...scorer,
    tellsUnlike: true,
    async score(solutions, options) {
      const found = await scorer.score(solutions, options);
      return found?.map((own, i) => {
        const of = unlike(solutions[i] as Solution);
        return of ? { ...own, unlike: of } : own;
      });
    },
  };
}

/** The sentence that warns of such text. */
export function unlikeSentence({ places, forms, words, inProblem }: UnlikeTraining): string {
  const some = (of: readonly string[]) =>
    `${of.slice(0, SHOWN_WORDS).join(', ')}${of.length > SHOWN_WORDS ? ', …' : ''}`;
  if (inProblem)
    return words.length > 0
      ? `the problem has words that this judge never met (${some(words)}): it is unsure of every step`
      : `the problem has known words in an order that this judge never met (${some(inProblem)}): it is unsure of every step`;
  const numbers = places.map((i) => i + 1).join(', ');
  const [which, has] =
    places.length === 1
      ? [`step ${numbers} is`, `step ${numbers} has`]
      : [`steps ${numbers} are`, `steps ${numbers} have`];
  if (words.length > 0)
    return `${has} words that this judge never met (${some(words)}): from there on it is unsure`;
  if (forms.length === 0)
    return `${has} no calculation such as 12 + 7 = 19 that this judge could check: its verdict there says little`;
  const known = forms.slice(0, 2).map((step) => `"${step}"`);
  return `${which} written unlike the steps that this judge learned from, such as ${known.join(' or ')}: from there on it is unsure`;
}
