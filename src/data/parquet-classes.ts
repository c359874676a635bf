/** Classes that `datasets` names in a Parquet file (`ClassLabel`). */
import type { FileMetaData } from 'hyparquet';
import { attempt } from '../native/attempt.js';
import { areReversed } from './class-names.js';
import { isRow } from './columns.js';

const NUMBER = /^-?\d+(?:\.\d+)?$/;
/** Columns of answers: a class there is a text, such as the `A` to `D` of MMLU. */
const ANSWER = /^(?:(?:gold|final|correct)_)?(?:answer|target)$/i;

/** A feature of `datasets`: a class label, a list of another, or fields by name. */
type Feature = Readonly<Record<string, unknown>>;

/**
 * Writes what classes are over their numbers, in a row: the number that is a class's name, else its name; null for -1, a row
 * without a class. Two classes keep 0 and 1, which readers take for wrong and right, unless their names say the opposite: no
 * reader of labels takes a name for that. Undefined where the file has no classes to write.
 */
export function classNames(metadata: FileMetaData): ((row: unknown) => void) | undefined {
  const features = featuresOf(metadata);
  return features && isNamed(features, '') ? (row) => writeNames(row, features) : undefined;
}

function featuresOf({ key_value_metadata: pairs = [] }: FileMetaData): Feature | undefined {
  const text = pairs.find(({ key }) => key === 'huggingface')?.value;
  if (text === undefined) return undefined;
  return attempt(() => {
    const { info } = JSON.parse(text) as { readonly info?: { readonly features?: unknown } };
    return isRow(info?.features) ? info.features : undefined;
  });
}

/** The classes whose names are written, in a column of that name. */
function namesOf({ _type: type, names }: Feature, column: string): readonly string[] | undefined {
  if (type !== 'ClassLabel' || !Array.isArray(names)) return undefined;
  const texts = names.map(String);
  const isMark = texts.length === 2 && !ANSWER.test(column) && !areReversed(texts);
  return isMark && !texts.every((name) => NUMBER.test(name)) ? undefined : texts;
}

/** The feature of a list's elements; `datasets` before 4 wrote lists of objects as lists themselves. */
function elementsOf(feature: Feature): Feature | undefined {
  const isList = /^(?:(?:Large)?List|Sequence)$/.test(`${feature._type}`);
  const element: unknown = Array.isArray(feature) ? feature[0] : isList ? feature.feature : undefined;
  return isRow(element) || Array.isArray(element) ? (element as Feature) : undefined;
}

/** Whether the feature has classes whose names are written; a list has the name of its column. */
function isNamed(feature: Feature, column: string): boolean {
  const elements = elementsOf(feature);
  if (elements) return isNamed(elements, column);
  return (
    namesOf(feature, column) !== undefined ||
    Object.entries(feature).some(
      ([key, part]) => (isRow(part) || Array.isArray(part)) && isNamed(part as Feature, key),
    )
  );
}

/** In place, since notes on how numbers are written hold for their own containers. */
function writeNames(container: unknown, feature: Feature, column = ''): void {
  const elements = elementsOf(feature);
  if (Array.isArray(container)) {
    if (elements) for (const i of container.keys()) writeName(container, i, elements, column);
  } else if (isRow(container)) {
    for (const key of Object.keys(container)) {
      // A list of objects may be an object of lists (`Sequence`).
      const inner = (elements ?? feature)[key];
      if (isRow(inner) || Array.isArray(inner)) writeName(container, key, inner as Feature, key);
    }
  }
}

function writeName(container: object, key: string | number, feature: Feature, column: string): void {
  const values = container as Record<string | number, unknown>;
  const value = values[key];
  const names = namesOf(feature, column);
  if (!names) writeNames(value, feature, column);
  else if (typeof value === 'number') {
    const name = names[value] ?? null;
    values[key] = name !== null && NUMBER.test(name) && !ANSWER.test(column) ? Number(name) : name;
  }
}
