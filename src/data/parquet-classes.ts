/** Classes that `datasets` names in a Parquet file (`ClassLabel`). */
import type { FileMetaData } from 'hyparquet';
import { attempt } from '../native/attempt.js';
import { isRow } from './columns.js';

const RIGHT = /^(?:right|correct|true|yes|good|positive|pos|valid|desirable|\+)$/i;
const WRONG = /^(?:wrong|incorrect|false|no|bad|negative|neg|invalid|error|undesirable|-)$/i;

/** A feature of `datasets`: a class label, a list of another, or fields by name. */
type Feature = Readonly<Record<string, unknown>>;

/**
 * Writes the names of classes over their numbers, in a row, where the names say that 0 is right or 1 wrong: no reader of labels takes
 * a name for the opposite. Undefined where the file has no such classes.
 */
export function contraryClasses(metadata: FileMetaData): ((row: unknown) => void) | undefined {
  const features = featuresOf(metadata);
  return features && isContrary(features) ? (row) => writeNames(row, features) : undefined;
}

function featuresOf({ key_value_metadata: pairs = [] }: FileMetaData): Feature | undefined {
  const text = pairs.find(({ key }) => key === 'huggingface')?.value;
  if (text === undefined) return undefined;
  return attempt(() => {
    const { info } = JSON.parse(text) as { readonly info?: { readonly features?: unknown } };
    return isRow(info?.features) ? info.features : undefined;
  });
}

const namesOf = ({ _type: type, names }: Feature): readonly unknown[] | undefined =>
  type === 'ClassLabel' && Array.isArray(names) ? names : undefined;

const partsOf = (feature: Feature): readonly Feature[] => Object.values(feature).filter(isRow);

function isContrary(feature: Feature): boolean {
  const names = namesOf(feature);
  if (!names) return partsOf(feature).some(isContrary);
  return names.length === 2 && (RIGHT.test(String(names[0])) || WRONG.test(String(names[1])));
}

/** In place, since notes on how numbers are written hold for their own containers. */
function writeNames(container: unknown, feature: Feature): void {
  if (Array.isArray(container)) {
    const inner = feature.feature;
    if (isRow(inner)) for (const i of container.keys()) writeName(container, i, inner);
  } else if (isRow(container)) {
    for (const key of Object.keys(container)) {
      // A list of objects may be an object of lists (`Sequence`).
      const inner = (isRow(feature.feature) ? feature.feature : feature)[key];
      if (isRow(inner)) writeName(container, key, inner);
    }
  }
}

function writeName(container: object, key: string | number, feature: Feature): void {
  const values = container as Record<string | number, unknown>;
  const names = namesOf(feature);
  if (!names) writeNames(values[key], feature);
  else if (isContrary(feature)) values[key] = names[values[key] as number] ?? values[key];
}
