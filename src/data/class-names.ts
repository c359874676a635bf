/** Names of two classes, of which readers take the first for wrong and the second for right. */

const RIGHT = /^(?:right|correct|true|yes|good|positive|pos|valid|desirable|\+)$/i;
const WRONG = /^(?:wrong|incorrect|false|no|bad|negative|neg|invalid|error|undesirable|-)$/i;

/** Whether the names of two classes say that the first is right, or the second wrong. */
export const areReversed = (names: readonly string[]): boolean =>
  names.length === 2 &&
  (RIGHT.test(names[0] as string) || WRONG.test(names[1] as string) || names.join() === '1,0');

/** Says of a model with such classes what to do, after its name. */
export const reversedClasses = ([first, second]: readonly string[]): string =>
  `its config.json names class 0 "${first}" and class 1 "${second}", and class 1 is read as right; exchange the two rows of its score and the two names`;
