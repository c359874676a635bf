/** Steps that are written like none that a judge learned from: its verdicts on them say little. */
import { calculationsIn } from '../data/equations/calculations.js';
import type { UnlikeTraining } from './scorer.js';
import type { JudgeSettings } from './settings.js';
import { foreignSteps, foreignWords } from './verdict/step-forms.js';

/** Most unknown words shown. */
const SHOWN_WORDS = 5;

/** Finds such steps by the forms and words in the card of a judge; undefined where the card has none. */
export function unlikeBy(
  settings: JudgeSettings | undefined,
): ((steps: readonly string[]) => UnlikeTraining | undefined) | undefined {
  if (settings?.kind !== 'verdict') return undefined;
  const { forms = [], words = [], likelihood } = settings;
  if (likelihood?.of === 'calculations')
    return (steps) => {
      const places = steps.flatMap((step, i) => (calculationsIn(step).length > 0 ? [] : [i]));
      return places.length > 0 ? { places, forms: [], words: [] } : undefined;
    };
  if (forms.length === 0 && words.length === 0) return undefined;
  return (steps) => {
    const places = forms.length > 0 ? foreignSteps(steps, forms) : [];
    if (places.length > 0) return { places, forms, words: [] };
    const foreign = words.length > 0 ? foreignWords(steps, words) : [];
    const withForeign = foreign.flatMap((of, i) => (of.length > 0 ? [i] : []));
    return withForeign.length > 0
      ? { places: withForeign, forms, words: [...new Set(foreign.flat())] }
      : undefined;
  };
}

/** The sentence that warns of such steps. */
export function unlikeSentence({ places, forms, words }: UnlikeTraining): string {
  const numbers = places.map((i) => i + 1).join(', ');
  const [which, has] =
    places.length === 1
      ? [`step ${numbers} is`, `step ${numbers} has`]
      : [`steps ${numbers} are`, `steps ${numbers} have`];
  if (words.length > 0) {
    const shown = words.slice(0, SHOWN_WORDS).join(', ');
    return `${has} words that this judge never met (${shown}${words.length > SHOWN_WORDS ? ', …' : ''}): from there on its verdicts say little`;
  }
  if (forms.length === 0)
    return `${has} no calculation such as 12 + 7 = 19 that this judge could check: its verdict there says little`;
  const known = forms.slice(0, 2).map((step) => `"${step}"`);
  return `${which} written unlike the steps that this judge learned from, such as ${known.join(' or ')}: from there on its verdicts say little`;
}
