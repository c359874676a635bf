// `pretrained:` of a recipe: values that replace its own where model.base is none of the package's small models.
import { basename } from 'node:path';
import { isShipped } from '../models/base.js';
import { dotted } from './dotted.js';
import { ConfigError } from './error.js';
import { describeValue } from './issues.js';
import type { RecipeSource } from './source.js';
import { isSection, merged, walk } from './values.js';

/** The recipe without its section `pretrained`, whose values it has for a base that is not the package's own; and a sentence about those that `config` has in the end. */
export function forBase<Layer extends RecipeSource>(
  layer: Layer,
  base: unknown,
): { readonly layer: Layer; readonly note?: (config: object) => string } {
  const { pretrained, ...value } = layer.value;
  if (!Object.hasOwn(layer.value, 'pretrained')) return { layer };
  const where = layer.locate(['pretrained']);
  if (!isSection(pretrained))
    throw new ConfigError(
      `${where}: pretrained expects sections as a recipe has them, found ${describeValue(pretrained)}`,
    );
  for (const key of ['method', 'extends'])
    if (Object.hasOwn(pretrained, key))
      throw new ConfigError(
        `${layer.locate(['pretrained', key], { key: true })}: pretrained has no ${key}; it holds values of sections alone`,
      );
  if (typeof base !== 'string' || isShipped(base)) return { layer: { ...layer, value } };
  const locate: RecipeSource['locate'] = (path, options) =>
    layer.locate(
      path.length > 0 && walk(pretrained, path).depth === path.length ? ['pretrained', ...path] : path,
      options,
    );
  return {
    layer: { ...layer, value: merged(value, pretrained), locate },
    note: (config) =>
      `for the base ${base} ${basename(layer.name)} has ${dotted(pretrained)
        .map(([key, value]) => `${key} ${String(walk(config, key.split('.')).found ?? value)}`)
        .join(', ')}; --set changes them`,
  };
}
