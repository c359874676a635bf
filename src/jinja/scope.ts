import type { Value } from './values.js';

/** Names with their values; other names may be in an enclosing scope. */
export class Scope {
  private readonly values = new Map<string, Value>();

  constructor(private readonly around?: Scope) {}

  get(name: string): Value | undefined {
    for (let scope: Scope | undefined = this; scope; scope = scope.around) {
      const value = scope.values.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  set(name: string, value: Value): void {
    this.values.set(name, value);
  }
}
