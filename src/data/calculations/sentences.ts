/** Sentences around numbers: those of problems, and those of solutions. */
import type { PhiloxStream } from '../../random/philox.js';
import { NAMES, NOISE, PLACES, SYLLABLES, THINGS, VERBS } from './words.js';

/** Who and what a problem tells of. */
export interface Cast {
  readonly names: readonly string[];
  readonly things: readonly string[];
}

export function drawCast(draw: PhiloxStream): Cast {
  const names = Array.from({ length: 1 + draw.below(3) }, () =>
    draw.uniform() < 0.3 ? capital(invented(draw)) : draw.pick(NAMES),
  );
  const things = Array.from({ length: 1 + draw.below(3) }, () =>
    draw.uniform() < 0.15 ? `${invented(draw)}s` : draw.pick(THINGS),
  );
  return { names, things };
}

const invented = (draw: PhiloxStream) =>
  Array.from({ length: 2 + draw.below(2) }, () => draw.pick(SYLLABLES)).join('');

const capital = (word: string) => word.charAt(0).toUpperCase() + word.slice(1);

/** Words without sense, from one to `most`. */
function noise(draw: PhiloxStream, most: number): string {
  return Array.from({ length: 1 + draw.below(most) }, () =>
    draw.uniform() < 0.1 ? invented(draw) : draw.pick(draw.below(4) === 0 ? THINGS : NOISE),
  ).join(' ');
}

/** A sentence of the problem that tells a number. */
export function telling(draw: PhiloxStream, { names, things }: Cast, number: string): string {
  const name = draw.pick(names);
  const thing = draw.pick(things);
  const verb = draw.pick(VERBS);
  const place = draw.pick(PLACES);
  switch (draw.below(14)) {
    case 0:
    case 1:
      return `${name} ${verb} ${number} ${thing}.`;
    case 2:
      return `${name} ${verb} ${number} more ${thing}.`;
    case 3:
      return `There are ${number} ${thing} at the ${place}.`;
    case 4:
      return `Each of the ${thing} costs $${number}.`;
    case 5:
      return `In the ${place}, ${name} ${verb} ${number} of the ${thing}.`;
    case 6:
      return `${number} ${thing} are ${draw.pick(NOISE)} at the ${place}.`;
    case 7:
      return `A ${noise(draw, 1)} ${draw.pick(VERBS)} ${number} ${thing} every ${place}.`;
    case 8:
      return `${name} ${verb} ${thing} for ${number} ${draw.pick(['days', 'hours', 'minutes', 'weeks', 'dollars'])}.`;
    case 9:
      return `${name}: ${number}.`;
    case 10:
      return `${name} pays $${number} for the ${thing}.`;
    case 11:
      return `Then ${number} ${thing} ${draw.pick(['are', 'were', 'have been'])} ${noise(draw, 2)}.`;
    default:
      return `${capital(noise(draw, 5))} ${number} ${noise(draw, 5)}.`;
  }
}

export function asking(draw: PhiloxStream, { names, things }: Cast): string {
  const name = draw.pick(names);
  const thing = draw.pick(things);
  switch (draw.below(7)) {
    case 0:
      return `How many ${thing} does ${name} have now?`;
    case 1:
      return `How many ${thing} are there in all?`;
    case 2:
      return `How much does ${name} pay for the ${thing}?`;
    case 3:
      return `How many ${thing} are left?`;
    case 4:
      return `What is the total number of ${thing}?`;
    case 5:
      return `Find the ${noise(draw, 4)}.`;
    default:
      return `${capital(noise(draw, 7))}?`;
  }
}

/** A step around its equation, `left equals right`; `result` is the number alone. */
export function stepping(
  draw: PhiloxStream,
  { names, things }: Cast,
  form: number,
  { left, right, joint, result }: Readonly<Record<'left' | 'right' | 'joint' | 'result', string>>,
): string {
  const name = draw.pick(names);
  const thing = draw.pick(things);
  const verb = draw.pick(VERBS);
  const place = draw.pick(PLACES);
  const equation = `${left}${joint}${right}`;
  switch (form) {
    case 0:
    case 1:
      return equation;
    case 2:
      return `${name}: ${equation}`;
    case 3:
      return `${name} ${verb} ${equation} ${thing}.`;
    case 4:
      return `So ${draw.pick(['he', 'she', 'it', name])} ${verb} ${equation} ${thing} now.`;
    case 5:
      return `The ${draw.pick(['total', 'rest', 'sum', 'difference', 'cost', 'number', 'amount'])} is ${equation}.`;
    case 6:
      return `${draw.pick(['Total', 'Altogether', 'Left', 'Cost', 'Rest', capital(thing)])}: ${equation}`;
    case 7:
      return `$${equation.replaceAll('$', '\\$')}$`;
    case 8:
      return `\\[ ${equation.replaceAll('$', '\\$')} \\]`;
    case 9:
      return `In the ${place} there are ${equation} ${thing}.`;
    case 10:
      return `${draw.pick(['First', 'Then', 'Next', 'Now', 'So', 'Finally', 'Therefore', 'Thus'])}, ${equation}.`;
    case 11:
      return `We ${draw.pick(['add', 'subtract', 'multiply', 'divide', 'compute', 'get', 'have'])} ${equation}.`;
    case 12:
      return `${equation}, so ${name} ${verb} ${result} ${thing}.`;
    case 13:
      return `${name} ${verb} ${left} ${draw.pick(['which is', 'or', 'so that is', 'giving', 'for a total of'])} ${right} ${thing}.`;
    case 14:
      return `${left} ${draw.pick(['is', 'equals', 'gives', 'makes', '->', 'is equal to', 'comes to'])} ${right}.`;
    case 15:
      return `${capital(noise(draw, 6))} ${equation}.`;
    case 16:
      return `${capital(noise(draw, 5))} ${equation} ${noise(draw, 4)}.`;
    case 17:
      return `${name}'s ${thing} ${verb} ${equation} ${noise(draw, 3)}.`;
    case 18:
      return `${equation} ${thing}`;
    case 19:
      return `${name} ${verb} ${result} ${thing}, because ${equation}.`;
    default:
      return `${equation} (${noise(draw, 3)})`;
  }
}
export const STEP_FORMS = 21;

/** A step that repeats a number. */
export function repeating(draw: PhiloxStream, { names, things }: Cast, number: string): string {
  const name = draw.pick(names);
  const thing = draw.pick(things);
  switch (draw.below(6)) {
    case 0:
      return `So ${name} ${draw.pick(VERBS)} ${number} ${thing}.`;
    case 1:
      return `That leaves ${number} ${thing}.`;
    case 2:
      return `The total is ${number}.`;
    case 3:
      return `There are ${number} ${thing} now.`;
    case 4:
      return `${capital(noise(draw, 4))} ${number}.`;
    default:
      return `${capital(noise(draw, 3))} ${number} ${noise(draw, 3)}.`;
  }
}

export function answering(draw: PhiloxStream, { names, things }: Cast, number: string): string {
  switch (draw.below(6)) {
    case 0:
    case 1:
      return `Answer: ${number}`;
    case 2:
      return `The answer is ${number}.`;
    case 3:
      return `#### ${number}`;
    case 4:
      return `${draw.pick(names)} has ${number} ${draw.pick(things)}.`;
    default:
      return `The final answer is \\boxed{${number}}.`;
  }
}
