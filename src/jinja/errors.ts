/** A template that is not valid, that fails as it would in Python, or that asks for what this engine does not have. */
export class JinjaError extends Error {}

/** The error for a part of Jinja or Python that real templates have not needed. */
export function unsupported(what: string): JinjaError {
  return new JinjaError(`${what} is not supported here`);
}
