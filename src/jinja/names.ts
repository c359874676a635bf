// The names that stand in the code of a template, not in the text around it.
import { JinjaError } from './errors.js';
import { type Token, tokens } from './lexer.js';

/** Before the name of an attribute, a filter or a test. */
const NAMES_OTHERS = new Set(['.', '|', 'is']);

export class TemplateNames {
  /** Variables that the template may read or set. */
  readonly variables = new Set<string>();
  /** Variables, attributes, and texts that are nothing but the name, as in `message['role'] == 'system'`. */
  readonly all = new Set<string>();

  /** A source that is no template has none. */
  constructor(source: string) {
    let before = '';
    for (const { type, value } of found(source)) {
      if (type === 'name' || type === 'text') this.all.add(value);
      if (type === 'name' && !NAMES_OTHERS.has(before)) this.variables.add(value);
      // `is not NAME` is a test as well.
      if (!(before === 'is' && value === 'not')) before = value;
    }
  }
}

function found(source: string): readonly Token[] {
  try {
    return tokens(source);
  } catch (error) {
    if (error instanceof JinjaError) return [];
    throw error;
  }
}
