/** The people and things of the problems. */
export const NAMES = [
  'Tom',
  'Ann',
  'Bob',
  'Eva',
  'Sam',
  'Mia',
  'Leo',
  'Zoe',
  'Max',
  'Ida',
  'Ben',
  'Amy',
  'Dan',
  'Kim',
  'Jon',
  'Sue',
] as const;

export const THINGS = [
  'apples',
  'pens',
  'books',
  'coins',
  'cards',
  'stamps',
  'shells',
  'marbles',
  'stickers',
  'cookies',
  'nuts',
  'balls',
  'cups',
  'keys',
] as const;

export const CONTAINERS = ['boxes', 'bags', 'packs', 'crates'] as const;
