/** The result of `call`, or `otherwise` where it throws. */
export function attempt<T, Otherwise = undefined>(call: () => T, otherwise?: Otherwise): T | Otherwise {
  try {
    return call();
  } catch {
    return otherwise as Otherwise;
  }
}
