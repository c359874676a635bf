// Turns a schema violation into one sentence: where, which key, what is expected, what was found.
import type { z } from 'zod';
import { nearestName } from '../native/nearest.js';
import { shown } from '../native/shown.js';
import { expectation, keysOf, kindsWith, type Outline, outlineAt, sectionOf } from './outline.js';
import { isSection, walk } from './values.js';

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/** `locate` gives the place of a value, or of its key, as the start of the sentence. */
export type Locate = (path: readonly PropertyKey[], options?: { readonly key?: boolean }) => string;

export interface ProblemContext {
  readonly outline: Outline;
  readonly value: unknown;
  readonly locate: Locate;
  /** A hint what to do about a key that is not known. */
  readonly unknown?: string | undefined;
}

/** Sentences for `issues`, in the order of the schema. */
export function describeIssues(issues: readonly Issue[], context: ProblemContext): string[] {
  return issues.flatMap((issue) => describeIssue(issue, [], context));
}

/** The expected value by the issue alone, where the outline ends. */
function expectedBy(issue: Issue): string {
  if (issue.code === 'too_small' && issue.origin === 'number')
    return `a number ${issue.inclusive ? 'of at least' : 'above'} ${issue.minimum}`;
  if (issue.code === 'too_big' && issue.origin === 'number') return `a number of at most ${issue.maximum}`;
  return 'another value';
}

function describeIssue(issue: Issue, prefix: Path, context: ProblemContext): string[] {
  const path = [...prefix, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    const advice = context.unknown === undefined ? '' : `; ${context.unknown}`;
    return issue.keys.map((key) => `${unknownKey([...path, key], context)}${advice}`);
  }
  if (issue.code === 'invalid_union') {
    const inside = sectionIssues(issue, walk(context.value, path).found);
    if (inside) return inside.flatMap((nested) => describeIssue(nested, path, context));
  }
  const { found } = walk(context.value, path);
  const name = path.map(String).join('.');
  const node = outlineAt(context.outline, path);
  const expected = node ? expectation(node) : expectedBy(issue);
  if (found === undefined) return [`${context.locate(path)}: ${name} is missing; expected ${expected}`];
  return [`${context.locate(path)}: ${name} expects ${expected}, found ${describeValue(found)}`];
}

/** Names of other programs, with those of the same here. */
const MEANT: Readonly<Record<string, readonly string[]>> = {
  rank: ['r'],
  alpha: ['lora_alpha'],
  dropout: ['lora_dropout'],
  lr: ['learning_rate'],
  epochs: ['num_train_epochs'],
  num_epochs: ['num_train_epochs'],
  batch_size: ['tokens_per_step'],
  train_batch_size: ['tokens_per_step'],
  per_device_train_batch_size: ['tokens_per_step', 'batch_size'],
  gradient_accumulation_steps: ['micro_batch_tokens'],
};

/** `place: unknown key "x" in section; did you mean "y"?` */
export function unknownKey(path: Path, { outline, locate }: Omit<ProblemContext, 'value'>): string {
  const key = String(path.at(-1));
  const parent = path.slice(0, -1);
  const node = outlineAt(outline, parent);
  const known = node ? keysOf(node) : [];
  const kinds = kindsWith(node?.oneOf ?? [], key);
  if (kinds) return `${locate(path, { key: true })}: ${path.map(String).join('.')} is for ${kinds}`;
  const place = `${locate(path, { key: true })}: unknown key ${shown(key)}${parent.length ? ` in ${parent.map(String).join('.')}` : ''}`;
  const meant = Object.hasOwn(MEANT, key) ? MEANT[key] : undefined;
  const here = meant?.find((name) => known.includes(name));
  // A name of another program is surer than a key with a similar name.
  const inSections = here ? [] : (meant ?? []).flatMap((name) => keysOfSections(outline, name));
  if (inSections.length > 0) return `${place}; did you mean ${inSections.map(shown).join(' or ')}?`;
  const nearest = here ?? nearestName(key, known);
  if (nearest !== undefined) return `${place}; did you mean ${shown(nearest)}?`;
  const [elsewhere] = findKeys(outline, key);
  if (elsewhere) return `${place}; did you mean ${shown(elsewhere)}?`;
  return known.length > 0 ? `${place}; known are ${known.join(', ')}` : place;
}

/** The dotted paths of the keys called `name` of the sections themselves. */
const keysOfSections = (outline: Outline, name: string) =>
  findKeys(outline, name).filter((path) => path.split('.').length === 2);

/** The dotted paths of the keys called `name` anywhere in the schema, for a key in the wrong section. */
function findKeys(node: Outline, name: string, path: readonly string[] = []): string[] {
  return Object.entries(sectionOf(node)?.properties ?? {}).flatMap(([key, child]) =>
    key === name ? [[...path, key].join('.')] : findKeys(child, name, [...path, key]),
  );
}

// A union such as `none | {…}` or `file | [file, …]`: if the value is a section or a list with some, report the errors inside it.
function sectionIssues(issue: z.core.$ZodIssueInvalidUnion, value: unknown): readonly Issue[] | undefined {
  if (!isSection(value) && !(Array.isArray(value) && value.some(isSection))) return undefined;
  return issue.errors.find(
    (errors) => !errors.some((error) => error.path.length === 0 && isTypeIssue(error)),
  );
}

function isTypeIssue(issue: Issue): boolean {
  return issue.code === 'invalid_type' || issue.code === 'invalid_value' || issue.code === 'invalid_format';
}

/** A value in words: `the text "abc"`, `the number 3`, `a list of 2`. */
export function describeValue(value: unknown): string {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return `the list ${shown(value)}`;
  switch (typeof value) {
    case 'string':
      return `the text ${shown(value)}`;
    case 'number':
      return `the number ${value}`;
    case 'boolean':
      return String(value);
    default:
      return 'a section';
  }
}
