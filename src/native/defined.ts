/** Every key may be left out, or be undefined, which is the same. */
export type OptionsOf<T> = { readonly [Key in keyof T]?: T[Key] | undefined };

/** The object without keys whose value is undefined. */
export function defined<T extends object>(object: { [Key in keyof T]: T[Key] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}
