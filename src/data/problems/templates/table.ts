/** The templates by name. */
import type { Draft, Story } from '../draft.js';
import { ages, comparison, difference, together, who } from './comparisons.js';
import { before, bus, events, sharing } from './events.js';
import { boxedComparison, boxes, reading, seats, shopping, wages } from './groups.js';

export type Template = (draft: Draft) => Story;

/** The templates that training sees. */
export const TEMPLATES: Readonly<Record<string, Template>> = {
  events,
  before,
  bus,
  sharing,
  comparison,
  together,
  difference,
  who,
  ages,
  boxes,
  shopping,
  reading,
  seats,
};

/** The templates that training never sees, in words that it does see. */
export const HELD_OUT_TEMPLATES: Readonly<Record<string, Template>> = {
  wages,
  boxed_comparison: boxedComparison,
};
