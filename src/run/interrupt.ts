// Ctrl-C and SIGTERM: the first stops the run at the next safe point, the second ends the process.

export interface Interruption {
  /** Aborted by the first SIGINT or SIGTERM. */
  readonly signal: AbortSignal;
  /** Stops listening. */
  dispose(): void;
}

/** The part of `process` used here; tests pass their own. */
interface SignalSource {
  on(event: NodeJS.Signals, listener: () => void): unknown;
  off(event: NodeJS.Signals, listener: () => void): unknown;
  exit(code: number): void;
}

export interface InterruptOptions {
  readonly print: (line: string) => void;
  /** The command that resumes the run, for the message before an immediate exit. */
  readonly hint: string;
  readonly source?: SignalSource;
}

/** Exit code of a process that a person interrupted, as in shells. */
export const INTERRUPTED = 130;

export function listenForInterrupt({ print, hint, source = process }: InterruptOptions): Interruption {
  const controller = new AbortController();
  const stop = (name: 'SIGINT' | 'SIGTERM') => () => {
    if (!controller.signal.aborted) {
      print(
        name === 'SIGINT'
          ? 'Stopping after the current step and writing a checkpoint; press Ctrl-C again to quit at once.'
          : 'Stopping after the current step and writing a checkpoint (SIGTERM).',
      );
      controller.abort(name);
      return;
    }
    // Schedulers repeat SIGTERM, so only a second Ctrl-C ends the process.
    if (name === 'SIGTERM') return;
    print(`Quit at once; what came after the last checkpoint is lost. ${hint}`);
    source.exit(INTERRUPTED);
  };
  const listeners = { SIGINT: stop('SIGINT'), SIGTERM: stop('SIGTERM') };
  for (const [name, listener] of Object.entries(listeners)) source.on(name as NodeJS.Signals, listener);
  return {
    signal: controller.signal,
    dispose() {
      for (const [name, listener] of Object.entries(listeners)) source.off(name as NodeJS.Signals, listener);
    },
  };
}
