interface Closed {
  close(): unknown;
}
interface Disposed {
  dispose(): unknown;
}
interface Finished {
  finish(): unknown;
}

/** The same object, which `using` or `await using` then ends by its own `close`, `dispose` or `finish`. */
export function ending<T extends Closed | Disposed | Finished>(thing: T): T & Disposable & AsyncDisposable {
  const end = () =>
    'close' in thing ? thing.close() : 'dispose' in thing ? thing.dispose() : thing.finish();
  return Object.assign(thing, {
    [Symbol.dispose]: end,
    [Symbol.asyncDispose]: async () => void (await end()),
  });
}
