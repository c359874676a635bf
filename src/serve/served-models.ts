/** The names that a request may give as `model`: the model itself, and adapters that are loaded and unloaded at run time. */
import { realpathSync } from 'node:fs';
import { resolve, sep } from 'node:path';
import type { Model } from '../api/model.js';
import { reasonOf } from '../files/data-error.js';
import { systemReason } from '../files/error.js';
import type { Generator } from '../generate/generator.js';
import { type Adapter, loadAdapter } from '../models/adapter.js';
import { refuseClassifier } from '../models/writes-text.js';
import { foreignBase } from '../run/trained-on.js';
import { isAdapter } from '../weights/adapter.js';
import { changesNothing } from '../weights/no-change.js';
import { fieldError, RequestError } from './errors.js';

/** An adapter for as long as a request uses it. */
export interface Lease {
  readonly name: string;
  readonly adapter: Adapter | undefined;
  release(): void;
}

interface Loaded {
  readonly adapter: Adapter;
  readonly directory: string;
  readonly created: number;
  users: number;
  /** Unloaded, but still used by requests. */
  gone: boolean;
}

/** Conditions on accepted adapters. */
export interface AdapterPolicy {
  /** Folder inside which adapters may be loaded on request; undefined: none may. */
  readonly root?: string | undefined;
  /** Whether adapters of another base are accepted. */
  readonly otherBase?: boolean | undefined;
  /** Called with a sentence for an adapter of unknown base, and for one that changes nothing. */
  readonly onWarning?: ((warning: string) => void) | undefined;
}

/** Names are part of paths, metrics and messages. */
const NAME = /^[\w][\w.:/@-]{0,127}$/;

export class ServedModels {
  private readonly adapters = new Map<string, Loaded>();
  private readonly created = seconds();

  /**
   * @param name of the model itself, with its own adapter where it has one
   */
  constructor(
    private readonly model: Model,
    private readonly generator: Generator,
    readonly name: string,
    private readonly policy: AdapterPolicy = {},
  ) {}

  /** @throws RequestError for a name that is not served */
  lease(name: string = this.name): Lease {
    if (name === this.name) return { name, adapter: this.model.adapter, release: () => {} };
    const loaded = this.adapters.get(name);
    if (!loaded) return this.refuseUnknown(name);
    loaded.users++;
    let held = true;
    return {
      name,
      adapter: loaded.adapter,
      release: () => {
        if (!held) return;
        held = false;
        loaded.users--;
        this.disposeIfUnused(loaded);
      },
    };
  }

  /** Loads a PEFT directory on a request from outside. */
  async loadRequested(name: string, path: string, replace: boolean): Promise<void> {
    const { root } = this.policy;
    if (root === undefined)
      throw new RequestError(403, 'this server loads no adapters; start it with --adapter-root DIR');
    await this.load(name, insideOf(root, path), replace);
  }

  /** @throws RequestError for a name that is taken, or a directory that is no adapter of the model */
  async load(name: string, directory: string, replace = false): Promise<void> {
    this.checkName(name, replace);
    await this.checkBase(directory);
    // Another request may have taken the name meanwhile.
    const earlier = this.checkName(name, replace);
    const { decoder } = this.model;
    let adapter: Adapter;
    try {
      refuseClassifier(directory);
      adapter = loadAdapter(decoder.device, decoder.config, directory);
      const unchanged = changesNothing(directory);
      if (unchanged !== undefined) this.policy.onWarning?.(unchanged);
    } catch (error) {
      throw fieldError('lora_path', reasonOf(error));
    }
    if (earlier) this.remove(name, earlier);
    this.adapters.set(name, { adapter, directory, created: seconds(), users: 0, gone: false });
  }

  /** @returns the adapter that has the name now, if it may be replaced */
  private checkName(name: string, replace: boolean): Loaded | undefined {
    if (!NAME.test(name)) throw fieldError('lora_name', 'expected up to 128 letters, digits and . _ : / @ -');
    const earlier = this.adapters.get(name);
    if (name === this.name || (earlier && !replace))
      throw fieldError('lora_name', `${name} has already been loaded; unload it first, or set load_inplace`);
    return earlier;
  }

  /** An adapter of another base of the same shape would answer, and badly. */
  private async checkBase(directory: string): Promise<void> {
    const base = this.model.files?.model;
    const { otherBase = false, onWarning } = this.policy;
    if (base === undefined || otherBase || !isAdapter(directory)) return;
    const { refusal, warning } = await foreignBase(directory, base, base).catch((error: unknown) => {
      throw fieldError('lora_path', reasonOf(error));
    });
    if (refusal !== undefined)
      throw fieldError(
        'lora_path',
        `${refusal}; load it where that one is served, or start this server with --other-base`,
      );
    if (warning !== undefined) onWarning?.(warning);
  }

  /** Requests that use it keep it until they end. */
  unload(name: string): void {
    const loaded = this.adapters.get(name);
    if (!loaded)
      throw fieldError('lora_name', `there is no adapter ${JSON.stringify(name.slice(0, 80))}`, 404);
    this.remove(name, loaded);
  }

  /**
   * The body of /v1/models.
   *
   * @param scorers names for `model` of /score
   */
  list(scorers: readonly string[] = []): object {
    return {
      object: 'list',
      data: [this.name, ...this.adapters.keys()].map((id) => this.card(id)),
      ...(scorers.length > 0 ? { scorers } : {}),
    };
  }

  /** @throws RequestError for a name that is not served */
  card(id: string): object {
    const loaded = this.adapters.get(id);
    if (!loaded && id !== this.name) return this.refuseUnknown(id);
    return {
      id,
      object: 'model',
      created: loaded?.created ?? this.created,
      owned_by: 'steptrain',
      root: loaded?.directory ?? this.name,
      parent: loaded ? this.name : null,
      max_model_len: this.model.decoder.config.maxPositions,
    };
  }

  private refuseUnknown(name: string): never {
    const names = [this.name, ...this.adapters.keys()].slice(0, 8).join(', ');
    throw new RequestError(
      404,
      `there is no model ${JSON.stringify(name.slice(0, 80))}; known are ${names}`,
      { param: 'model', code: 'model_not_found' },
    );
  }

  dispose(): void {
    for (const [name, loaded] of this.adapters) this.remove(name, loaded);
  }

  private remove(name: string, loaded: Loaded): void {
    this.adapters.delete(name);
    loaded.gone = true;
    this.disposeIfUnused(loaded);
  }

  private disposeIfUnused({ adapter, users, gone }: Loaded): void {
    if (!gone || users > 0) return;
    this.generator.forget(adapter);
    adapter.dispose();
  }
}

/** The real directory; errors reveal nothing about files outside of `root`. */
function insideOf(root: string, path: string): string {
  const within = (directory: string, folder: string) =>
    directory === folder || directory.startsWith(folder + sep) ? directory : undefined;
  const outside = () =>
    fieldError('lora_path', 'the server loads adapters from inside its --adapter-root alone', 403);
  const named = within(resolve(root, path), resolve(root));
  if (named === undefined) throw outside();
  let real: string;
  try {
    real = realpathSync(named);
  } catch (error) {
    throw fieldError(
      'lora_path',
      `${path}, counted from the server's --adapter-root: ${systemReason(error)}`,
    );
  }
  if (within(real, realpathSync(root)) === undefined) throw outside();
  return real;
}

function seconds(): number {
  return Math.floor(Date.now() / 1000);
}
