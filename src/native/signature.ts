/** The op list as TypeScript reads it: names and positions, parsed from the addon's own signature texts. */
import { addon } from './addon.js';

export interface OpSignature {
  readonly id: number;
  readonly name: string;
  readonly text: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly { readonly name: string; readonly optional: boolean }[];
  readonly scalars: readonly string[];
}

let table: ReadonlyMap<string, OpSignature> | undefined;

export function signatures(): ReadonlyMap<string, OpSignature> {
  table ??= new Map(
    addon()
      .signatures()
      .map((text, id) => {
        const signature = parse(text, id);
        return [signature.name, signature];
      }),
  );
  return table;
}

function parse(text: string, id: number): OpSignature {
  const open = text.indexOf('(');
  const close = text.indexOf(')');
  const [tensors = '', scalars = ''] = text.slice(open + 1, close).split(';');
  const outputs = text.slice(close + 1).replace(/^\s*->/, '');
  const names = (list: string) =>
    list
      .replace(/\[[^\]]*\]/g, '')
      .split(',')
      .map((item) => item.trim())
      .filter((item) => item !== '')
      .map((item) => {
        const name = item.slice(0, item.indexOf(':')).replace('&', '');
        return { name: name.replace('?', ''), optional: name.endsWith('?') };
      });
  return {
    id,
    name: text.slice(0, open).trim(),
    text,
    inputs: names(tensors).map((input) => input.name),
    outputs: names(outputs),
    scalars: names(scalars).map((scalar) => scalar.name),
  };
}
